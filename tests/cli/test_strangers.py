"""The command line talks to the Kaiwo of its own user, and tells a stranger nothing."""

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.app.http_server import serve
from kaiwo.app.options import SOCKET
from kaiwo.cli.client.find_server import ServerLocation, connect
from kaiwo.cli.client.peer_user import users_behind_port
from kaiwo.model.errors import KaiwoError
from tests.app.test_http_server_tls import app
from tests.cli.conftest import Type
from tests.cli.stub_server import Stub
from tests.waiting import wait_until

NOBODY = 65534
SECRET = "s" * 43
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
# The interpreter of root may be out of reach for others, so the process changes its user when it has begun.
BECOME = """
import os, socket, sys
user = int(sys.argv.pop(1))
if user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
"""
LISTEN = """
host, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
listener = socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(1)
    try:
        heard = connection.recv(65536)
    except OSError:
        heard = b""
    print(heard, flush=True)
    body = b'{"path": "/login?code=stolen"}'
    try:
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
    except OSError:
        pass
    connection.close()
"""


class Listener:
    """A process of some user that listens on a port and writes down what it is sent."""

    def __init__(self, user: int, host: str = "127.0.0.1", port: int = 0) -> None:
        command = [sys.executable, "-c", BECOME + LISTEN, str(user), host, str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def heard(self) -> str:
        """All that it was sent. It ends."""
        self._process.terminate()
        return self._process.communicate()[0]


@pytest.fixture
def owned(home: Path) -> Path:
    """A home with a token."""
    (home / "token").write_text(SECRET + "\n")
    (home / "token").chmod(0o600)
    return home


@needs_root
@pytest.mark.parametrize("is_left_by_new_version", [True, False])
def test_a_stranger_on_the_port_of_a_killed_kaiwo_hears_nothing(
    kaiwo: Type, owned: Path, is_left_by_new_version: bool
) -> None:
    stranger = Listener(NOBODY)
    (owned / "server.json").write_text(json.dumps({"url": f"http://127.0.0.1:{stranger.port}", "pid": 1}))
    if is_left_by_new_version:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(owned / SOCKET))
    for words in (["status"], ["login"], ["submit", "job", "--env", "KEY=hush", "--", "true"], ["cancel", "x"]):
        done = kaiwo(*words)
        assert done.code == 1
        assert ("connection refused" if is_left_by_new_version else "belongs to another user") in done.err
        assert "kaiwo up" in done.err
    heard = stranger.heard()
    assert SECRET not in heard
    assert "HTTP" not in heard, "not even the request"


@needs_root
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_an_explicit_address_of_a_stranger_gets_no_token(kaiwo: Type, owned: Path, host: str) -> None:
    stranger = Listener(NOBODY, host)
    name = "[::1]" if host == "::1" else "127.0.0.1"
    done = kaiwo("--server", f"http://{name}:{stranger.port}", "status")
    assert done.code == 1
    assert f"belongs to another user (uid {NOBODY}), so nothing was sent" in done.err
    assert "HTTP" not in stranger.heard()


@needs_root
def test_the_kaiwo_of_another_user_is_used_when_that_user_is_named(
    kaiwo: Type, owned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Listener(NOBODY)
    monkeypatch.setenv("KAIWO_TOKEN", SECRET)
    monkeypatch.setenv("KAIWO_SERVER_USER", str(NOBODY))
    assert "/login?code=stolen" in kaiwo("--server", f"http://127.0.0.1:{other.port}", "login").out
    assert SECRET in other.heard()
    monkeypatch.setenv("KAIWO_SERVER_USER", "no-such-user")
    done = kaiwo("--server", "http://127.0.0.1:1", "login")
    assert (done.code, "there is no user 'no-such-user'" in done.err) == (2, True)


@needs_root
def test_a_socket_that_another_user_planted_is_not_used(kaiwo: Type, owned: Path) -> None:
    """For example in a home that was readable and writable for all."""
    owned.chmod(0o777)
    (owned / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    with _reachable(owned) as path, socket.socket(socket.AF_UNIX) as left:
        os.seteuid(NOBODY)
        try:
            left.bind(str(path / SOCKET))
            left.listen()
        finally:
            os.seteuid(0)
        done = kaiwo("status", "--home", str(path))
    assert done.code == 1
    assert f"belongs to another user (uid {NOBODY}), so nothing was sent" in done.err


@contextlib.contextmanager
def _reachable(home: Path) -> Iterator[Path]:
    """The same folder under a path that other users can walk."""
    before = [(path, stat.S_IMODE(path.stat().st_mode)) for path in home.parents if path != Path("/tmp")]
    try:
        for path, mode in before:
            path.chmod(mode | 0o111)
        yield home
    finally:
        for path, mode in before:
            path.chmod(mode)


def test_the_kaiwo_of_a_home_is_reached_through_its_socket_alone(owned: Path) -> None:
    """Even if its port is somebody else's by now."""

    async def look() -> None:
        server, url = await serve(app, "127.0.0.1", 0, str(owned))
        try:
            file = owned / SOCKET
            assert stat.S_ISSOCK(file.lstat().st_mode)
            assert stat.S_IMODE(file.lstat().st_mode) == 0o600
            assert stat.S_IMODE((owned / "server.json").stat().st_mode) == 0o600
            with socket.create_server(("127.0.0.1", 0)) as other:
                taken = f"http://127.0.0.1:{other.getsockname()[1]}"
                (owned / "server.json").write_text(json.dumps({"url": taken, "pid": os.getpid()}))
                assert await asyncio.to_thread(connect(ServerLocation(home=str(owned))).get, "/") == b"http"
                other.setblocking(False)
                with pytest.raises(BlockingIOError):
                    other.accept()
        finally:
            await server.stop()
        assert not file.exists()
        assert url

    asyncio.run(look())


@needs_root
def test_the_socket_answers_only_its_owner_and_root(tmp_path: Path) -> None:
    """Even if the modes of the folder and of the socket were opened for all."""
    ask = (
        "s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])\n"
        "try: s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n'); print(s.recv(99))\n"
        "except ConnectionError: print('closed')"
    )

    async def look() -> None:
        server, _ = await serve(app, "127.0.0.1", 0, str(tmp_path))
        try:
            tmp_path.chmod(0o755)
            (tmp_path / SOCKET).chmod(0o666)
            with _reachable(tmp_path):
                for user, expected in ((0, "200"), (NOBODY, "closed")):
                    done = await asyncio.to_thread(
                        subprocess.run,
                        [sys.executable, "-c", BECOME + ask, str(user), str(tmp_path / SOCKET)],
                        capture_output=True,
                        text=True,
                        check=False,
                    )
                    answer = done.stdout.strip() or done.stderr
                    assert expected in answer or (user and answer == "b''"), answer
        finally:
            await server.stop()

    asyncio.run(look())


def test_a_home_deeper_than_a_socket_path_may_be_works(tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 20) / ("deeper" * 20)
    home.mkdir(parents=True)

    async def look() -> None:
        server, _ = await serve(app, "127.0.0.1", 0, str(home))
        try:
            assert await asyncio.to_thread(connect(ServerLocation(home=str(home))).get, "/") == b"http"
        finally:
            await server.stop()

    asyncio.run(look())


def test_the_socket_of_a_killed_kaiwo_is_replaced_and_another_file_is_not(tmp_path: Path) -> None:
    async def start() -> None:
        server, _ = await serve(app, "127.0.0.1", 0, str(tmp_path))
        await server.stop()

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    asyncio.run(start())
    (tmp_path / SOCKET).write_text("precious")
    with pytest.raises(KaiwoError, match="is not a socket; remove it"):
        asyncio.run(start())
    assert (tmp_path / SOCKET).read_text() == "precious"


def test_a_token_never_leaves_the_machine_in_the_clear(
    kaiwo: Type, owned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address of this machine that is not loopback stands for another machine."""
    monkeypatch.setenv("KAIWO_TOKEN", SECRET)
    monkeypatch.setattr("kaiwo.cli.client.http_connection.is_on_loopback", lambda connection: False)
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as other:

        def listen() -> None:
            connection, _ = other.accept()
            with connection:
                heard.append(connection.recv(65536))

        listening = threading.Thread(target=listen)
        listening.start()
        done = kaiwo("--server", f"http://127.0.0.1:{other.getsockname()[1]}", "status")
        listening.join()
    assert heard == [b""]
    assert done.code == 1
    assert "the token is never sent to another machine without encryption" in done.err
    assert "https" in done.err


def test_the_user_of_a_port_is_found(stub: Stub) -> None:
    port = int(stub.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert users_behind_port(connection) == {os.geteuid()}


@needs_root
@pytest.mark.slow
def test_kill_then_a_stranger_on_the_port_of_a_real_kaiwo(tmp_path: Path) -> None:
    from tests.browser.product import Product

    product = Product(tmp_path)
    product.start()
    assert product.run("login").startswith(product.url)
    product.kill()
    stranger = Listener(NOBODY, port=product.port)
    with pytest.raises(AssertionError, match="no kaiwo is running"):
        product.run("status")
    assert "HTTP" not in stranger.heard()
    product.start()
    try:
        product.run("status")
    finally:
        product.stop()


@needs_root
def test_the_agent_sends_a_stranger_no_token(owned: Path) -> None:
    stranger, said = Listener(NOBODY), owned / "said"
    command = [str(Path(sys.executable).with_name("kaiwo")), "agent", "--token-file", str(owned / "token")]
    with said.open("w") as log:
        address = f"http://127.0.0.1:{stranger.port}"
        agent = subprocess.Popen([*command, "--server", address], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "failed" in said.read_text() or agent.poll() is not None, "the agent to try")
    finally:
        agent.terminate()
        agent.wait()
    assert f"belongs to another user (uid {NOBODY}), so nothing was sent" in said.read_text()
    heard = stranger.heard()
    assert SECRET not in heard
    assert "HTTP" not in heard
