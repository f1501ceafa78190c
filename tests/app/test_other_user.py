"""Another user of the machine tries to read, change or impersonate a running `kaiwo up`, and gains nothing.

The attempts run as another user in a process of its own; docs/security.md has the same table.
"""

import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kaiwo.api.security.roles import Right
from kaiwo.api.security.route_rights import RIGHT_OF_ROUTE
from tests.browser.product import Product
from tests.cli.test_strangers import BECOME, NOBODY, Listener, _reachable, needs_root
from tests.conftest import ROOT
from tests.docs.markdown import table

pytestmark = [needs_root, pytest.mark.slow]
SECRET = "hush-4711"  # in the environment of a job, in its output and in its arguments' file
_FILLED = {"{namespace}": "default", "{name}": "job", "{node}": "node-1", "{id}": "t-1"}
_BODIES = {"POST /workloads": {"name": "evil", "command": ["id"]}, "POST /policy": {"set": {"steps": "1"}}}

# Each attempt returns what it gained; nothing is empty. It runs as the other user.
ATTEMPTS = (
    # While the library can still be read.
    "import ctypes, encodings.idna, email.parser, fcntl, http.client, json, resource, signal"
    + BECOME
    + """
home, port, pids = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])

def send(method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(2000).decode(errors="replace"), dict(answer.getheaders())
    finally:
        connection.close()

def allowed(*answers):
    return [f"{status} {text[:80]}" for status, text, _ in answers if status < 400]

def readable(paths):
    found = []
    for path in paths:
        try:
            open(path, "rb").read(1)
            found.append(path)
        except OSError:
            pass
    return found

def files():
    return readable(os.path.join(folder, name) for folder, _, names in os.walk(home) for name in names)

def write_home():
    gained = []
    for name in ("server.json", "api.sock", "token", "runs/x", "journal/x"):
        try:
            open(os.path.join(home, name), "w").close()
            gained.append(name)
        except OSError:
            pass
    return gained

def own_socket():
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.path.join(home, "api.sock"))
        return ["connected"]
    except OSError:
        return []

def memory():
    return readable(f"/proc/{pid}/{name}" for pid in pids for name in ("environ", "mem", "maps", "fd/0", "cwd/token"))

def kill():
    gained = []
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
            gained.append(pid)
        except OSError:
            pass
    return gained

def arguments():
    lines = [open(f"/proc/{pid}/cmdline").read() for pid in pids if os.path.exists(f"/proc/{pid}")]
    return [line for line in lines if sys.argv[4] in line or "token" in line.lower()]

def codes():
    return allowed(*(send("POST", "/api/v1/sessions", json.dumps({"code": f"guess-{n}"})) for n in range(40)))

def tokens():
    return allowed(*(send("GET", "/api/v1/status", Authorization=f"Bearer guess-{n}") for n in range(40)))

def cookies():
    answers = [send("GET", path) for path in ("/", "/login?code=x", "/api/v1/status", "/healthz")]
    stolen = [headers for _, _, headers in answers if any(name.lower() == "set-cookie" for name in headers)]
    return stolen + allowed(send("GET", "/api/v1/status", Cookie="kaiwo_session=x"))

def tried(*acts):
    gained = []
    for number, act in enumerate(acts):
        try:
            if act() not in (-1, False):
                gained.append(number)
        except OSError:
            pass
    return gained

def hurt():
    trace = ctypes.CDLL(None).ptrace
    def each(pid):
        return tried(
            lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: trace(16, pid, 0, 0),
            lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)), lambda: os.kill(pid, signal.SIGSTOP),
            lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"),
        )
    return [found for pid in pids for found in each(pid)]

def move():
    name = lambda word: os.path.join(home, word)
    return tried(
        lambda: os.link(name("token"), name("../stolen")), lambda: os.rename(name("token"), name("token2")),
        lambda: os.rename(home, home + "2"), lambda: os.symlink("/etc/passwd", name("runs/evil")),
        lambda: fcntl.flock(os.open(name("lock"), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB),
        lambda: os.listdir(name("runs")), lambda: os.listdir(name("audit")), lambda: os.unlink(name("state.mark")),
    )

def cgroups():
    names = ("cgroup.procs", "cgroup.kill", "tasks", "memory.max", "memory.limit_in_bytes", "pids.max")
    folders = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if "/kaiwo" in folder]
    return tried(*(lambda path=os.path.join(folder, name): open(path, "w").write(str(os.getpid()))
                   for folder in folders for name in names if os.path.exists(os.path.join(folder, name))))

def take_port():
    def listen(address):
        listener = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind((address, port))
        listener.listen()
    return tried(lambda: listen("127.0.0.1"), lambda: listen("0.0.0.0"), lambda: listen("127.0.0.2") or False)

def speak_oddly():
    status = "/api/v1/status"
    heads = (
        f"GET http://127.0.0.1:{port}{status}", f"GET /{status}", "GET /API/v1/status", f"GET {status}?access_token=x",
        f"GET {status}%00", f"GET /.{status}", f"PROPFIND {status}", f"TRACE {status}", f"CONNECT 127.0.0.1:{port}",
    )
    extra = (
        "", "X-HTTP-Method-Override: GET|X-Forwarded-User: root|X-Remote-User: root|", "Authorization: Bearer |",
        "Authorization: Basic cm9vdDo=|", "Upgrade: websocket|Connection: Upgrade|Sec-WebSocket-Version: 13|",
        "Content-Length: 4|Transfer-Encoding: chunked|",
    )
    gained = []
    for head in heads:
        for more in extra:
            connection = socket.create_connection(("127.0.0.1", port), 10)
            text = f"{head} HTTP/1.1|Host: 127.0.0.1:{port}|{more}|"
            connection.sendall(text.replace("|", chr(13) + chr(10)).encode())
            answer = connection.recv(2000).decode(errors="replace")
            connection.close()
            if answer and int(answer.split()[1]) < 400:
                gained.append(f"{head}: {answer[:40]}")
    return gained

def old_login():
    return allowed(*(send("GET", path) for path in ("/api/v1/logins", "/api/v1/tokens", "/api/v1/audit")))

def others_of_its_sockets():
    lines = [line.split() for line in open("/proc/net/unix")][1:]
    paths = {line[7] for line in lines if len(line) > 7 and (home in line[7] or "kaiwo" in line[7].lower())}
    def reach(path):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path.replace("@", chr(0), 1))
            return path
    return tried(*(lambda path=path: reach(path) for path in sorted(paths)))

def temporary():
    places = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/dev/mqueue")
    names = [os.path.join(place, name) for place in places if os.path.isdir(place) for name in os.listdir(place)]
    ours = [name for name in names if "kaiwo" in name.lower() and os.stat(name).st_uid == 0]
    return readable(ours) + [name for name in ours if os.access(name, os.W_OK) and not os.path.isfile(name)]

def shared():
    gained = []
    for kind in ("shm", "msg", "sem"):
        if os.path.exists(f"/proc/sysvipc/{kind}"):
            lines = [line.split() for line in open(f"/proc/sysvipc/{kind}")][1:]
            gained += [line for line in lines if {str(pid) for pid in pids} & set(line)]
    return gained

def descriptors():
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(16)
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    here, there = Vector(ctypes.addressof(buffer), 16), Vector(0x400000, 16)
    def take(pid, number):
        handle = os.pidfd_open(pid)
        return libc.syscall(438, handle, number, 0)  # pidfd_getfd
    gained = []
    for pid in pids:
        gained += tried(
            *(lambda pid=pid, number=number: take(pid, number) for number in range(12)),
            lambda: libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
            lambda: libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
        )
    return gained

def insides():
    names = ("auxv", "io", "stack", "syscall", "smaps", "pagemap", "numa_maps", "fdinfo/0", "exe", "root/etc/passwd",
             "map_files", "ns/mnt", "timers", "clear_refs", "personality", "mountinfo/x")
    secret = sys.argv[4].encode()
    gained = readable(f"/proc/{pid}/{name}" for pid in pids for name in names)
    for pid in pids:  # what everybody may read shows no secret
        for name in ("status", "stat", "cmdline", "comm", "cgroup", "mountinfo", "sched", "wchan"):
            try:
                gained += [name] if secret in open(f"/proc/{pid}/{name}", "rb").read() else []
            except OSError:
                pass
    return gained

def pin():
    libc = ctypes.CDLL(None, use_errno=True)
    return [found for pid in pids for found in tried(
        lambda: os.sched_setaffinity(pid, {0}) or True, lambda: os.sched_setscheduler(pid, os.SCHED_IDLE,
        os.sched_param(0)) or True, lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9) or True,
        lambda: libc.syscall(251, 1, pid, 3 << 13), lambda: open(f"/proc/{pid}/coredump_filter", "w").write("ff"),
        lambda: open(f"/proc/{pid}/comm", "w").write("x"),
        lambda: os.write(os.open(f"/proc/{pid}/timerslack_ns", os.O_WRONLY), b"9"),
    )]

def listen_in():
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(0)
    folders = [os.path.join(home, name) for name in ("runs", "journal", "audit", "token", "state.db", "api.sock")]
    # From the folder itself, whose names others see here, no content follows.
    return tried(*(lambda path=path: libc.inotify_add_watch(watch, path.encode(), 0xFFF) for path in folders))

def take_other_address():
    def listen(family, address):
        listener = socket.socket(family)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address, port))
        listener.listen()
        listener.settimeout(1)
        send("GET", "/healthz")
        try:
            listener.accept()
        except TimeoutError:
            return False
    return tried(*(lambda address=address: listen(socket.AF_INET6, address) for address in ("::ffff:127.0.0.1", "::")))

reads, writes = json.loads(sys.argv[5])
own_page = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": f"http://127.0.0.1:{port + 1}"}
attempts = {
    "read files of the home": files,
    "write files into the home": write_home,
    "connect to the socket": own_socket,
    "read the memory or the environment of processes": memory,
    "find secrets in arguments": arguments,
    "send signals": kill,
    "read through the API": lambda: allowed(*(send("GET", path) for path in reads)),
    "read heads through the API": lambda: allowed(*(send("HEAD", path) for path in reads)),
    "read metrics": lambda: allowed(send("GET", "/metrics")),
    "change something through the API": lambda: allowed(*(send(*each) for each in writes)),
    "guess tokens": tokens,
    "guess login codes": codes,
    "obtain or replay a cookie": cookies,
    "fetch from a page of another port": lambda: allowed(send("GET", "/api/v1/status", **own_page)),
    "use another host name": lambda: allowed(send("GET", "/api/v1/status", Host="evil.example")),
    "slow, trace, stop or starve processes": hurt,
    "move, link, lock or remove files of the home": move,
    "join, end or bound the cgroups of runs": cgroups,
    "listen on its port beside it": take_port,
    "speak HTTP in odd ways": speak_oddly,
    "list people, tokens and the audit": old_login,
    "reach other sockets of its processes": others_of_its_sockets,
    "read or change what it leaves in temporary folders": temporary,
    "attach to shared memory, queues and semaphores": shared,
    "copy open files and memory of processes": descriptors,
    "read the insides of processes in /proc": insides,
    "pin processes, or change their scheduling": pin,
    "watch its folders for changes": listen_in,
    "listen on its port under other forms of its address": take_other_address,
    "leave the folder of the page": lambda: [
        text for path in ("/..%2f..%2ftoken", "/%2e%2e/%2e%2e/token", "/assets/..%2f..%2f..%2f..%2fetc/passwd")
        for status, text, _ in [send("GET", path)] if status < 400
    ],
}
print(json.dumps({name: attempt() for name, attempt in attempts.items()}))
"""
)
OTHERS = (
    "be taken for Kaiwo on localhost, which is also ::1",
    "be taken for Kaiwo on its port after it was killed",
    "replay what an open page sends to that port",
)


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    """A Kaiwo in a folder that others may enter: its files must hold on their own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    product = Product(home)
    product.start()
    (home / "up.log").chmod(0o600)  # what the test's own shell wrote
    product.run("submit", "job", "--env", f"KEY={SECRET}", "--", "sh", "-c", "echo my $KEY; sleep 600")
    product.run("wait", "job", "--for", "running")
    product.run("progress", "job", "--step", "2s", "--expected", "2s")
    product.run("policy", "set", "placement=spread")
    product.run("backup")
    with _reachable(home):
        yield product
    with suppress(AssertionError):
        product.run("cancel", "job")
    product.stop()


def test_another_user_gains_nothing(product: Product) -> None:
    pids = _processes(product.home)
    assert len(pids) >= 3, "Kaiwo, the supervisor and the job"
    words = [str(NOBODY), str(product.home), str(product.port), json.dumps(pids), SECRET, json.dumps(_requests())]
    done = subprocess.run([sys.executable, "-c", ATTEMPTS, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gained = json.loads(done.stdout)
    assert len(gained) >= 12
    assert {name: what for name, what in gained.items() if what} == {}
    assert "running" in product.run("get", "workloads"), "and nothing was stopped"
    rows = [row[0] for row in table(ROOT / "docs" / "security.md", "attempt")]
    assert rows == [*gained, *OTHERS]


def test_another_user_is_not_taken_for_kaiwo(product: Product) -> None:
    """Neither on ::1 while it runs, nor on its port when it was killed; and what he hears is worth nothing later."""
    beside = Listener(NOBODY, "::1", product.port)
    assert product.run("status")
    connection = http.client.HTTPConnection("127.0.0.1", product.port)
    connection.request("GET", "/", headers={"Host": f"localhost:{product.port}"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (307, product.url), "a page of localhost could be his"
    connection.close()
    assert "HTTP" not in beside.heard()
    session = _log_in(product)
    assert _status(product, session) == 200
    product.kill()
    stranger = Listener(NOBODY, port=product.port)
    with pytest.raises(AssertionError, match="no kaiwo is running"):
        product.run("status")
    with suppress(OSError, ValueError):
        _status(product, session)  # an open page tries again
    assert session in stranger.heard()
    product.start()
    assert _status(product, session) == 401


def _requests() -> tuple[list[str], list[tuple[str, str, str]]]:
    """Every route that needs a right: what reads, and what writes with a method, a path and a body."""
    reads, writes = [], []
    for route, right in RIGHT_OF_ROUTE.items():
        if right is Right.NONE:
            continue
        method, path = route.split()
        for placeholder, name in _FILLED.items():
            path = path.replace(placeholder, name)
        path = path if path.startswith(("/api/", "/metrics")) else f"/api/v1{path}"
        if method == "GET":
            reads.append(path)
        else:
            writes.append((method, path, json.dumps(_BODIES.get(route, {}))))
    assert len(reads) > 30
    assert len(writes) > 30
    return reads, writes


def _log_in(product: Product) -> str:
    body = json.dumps({"code": product.new_login().rpartition("=")[2]}).encode()
    request = urllib.request.Request(f"{product.url}api/v1/sessions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["token"])


def _status(product: Product, token: str) -> Any:
    request = urllib.request.Request(f"{product.url}api/v1/status", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def _processes(home: Path) -> list[int]:
    """Kaiwo, and all processes of its runs."""
    first = int((home / "lock").read_text())
    found = {first}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with suppress(OSError):
            if str(home) in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                found.add(pid)
    return sorted(found - {os.getpid()})
