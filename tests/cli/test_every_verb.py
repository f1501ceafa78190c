"""Every verb, with every kind of server, on every terminal, with odd names, and stopped at any moment.

The lines come from `verb_lines.py`, which has to have every verb of the table.
"""

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from wcwidth import wcswidth

from kaiwo.cli import verb_base
from kaiwo.cli.verbs.operate import defrag
from tests.cli.conftest import Type
from tests.cli.test_end_to_end import KAIWO, Product
from tests.cli.verb_lines import ASKS_THE_SERVER, LINES, SCREENS, all_verbs, words
from tests.conftest import ROOT, SIZE
from tests.waiting import PATIENCE_S

WIDTHS = (60, 80, 200)
TABS_OF = ("install", "completion", "policy get", "login")  # what they print is copied, not read: it is never wrapped
ODD_NAMES = (
    "",
    "-",
    "--",
    "a b",
    "..",
    "x/../y",
    "ünï",
    "日本語",
    "%2e%2e",
    "a" * 300,
    "🚀",
    "a\tb",
    "[0-9]",
    "*",
    "/",
)
MAPS = ("workloads", "labels", "stranded_by", "gpu_models", "fields")  # with keys that are data, not fields
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")


class Screen(NamedTuple):
    code: int
    text: str


def test_every_verb_has_a_line() -> None:
    assert set(LINES) == all_verbs(), "give the new verb a line in tests/cli/verb_lines.py"


# Servers that are gone, slow, restarted or of another version.


@pytest.mark.parametrize("verb", ASKS_THE_SERVER)
def test_a_server_that_is_gone(verb: str, kaiwo: Type, home: Path, tmp_path: Path) -> None:
    line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
    done = kaiwo(*line)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"kaiwo: no kaiwo is running (looked in {home}/server.json); start one with: kaiwo up\n"
    (home / "server.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_port()}", "pid": 1}))
    done = kaiwo(*line)
    assert (done.code, done.out) == (1, "")
    assert one_sentence(done.err)
    assert "kaiwo up" in done.err or "does not answer" in done.err


@pytest.mark.parametrize("verb", ASKS_THE_SERVER)
def test_a_server_that_never_answers(verb: str, kaiwo: Type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verb_base, "DEFAULT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(defrag, "PLAN_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        began_s = time.monotonic()
        done = kaiwo("--server", url, *words(verb, tmp_path, ROOT / "examples" / "job.yaml"))
        assert (done.code, done.out) == (1, ""), done
        assert one_sentence(done.err)
        assert url in done.err
        assert time.monotonic() - began_s < PATIENCE_S


class OtherVersion(ThreadingHTTPServer):
    """Another version between the command and a real server: `newer` adds fields, `older` knows no route but two."""

    daemon_threads = True

    def __init__(self, product: Product | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.product = product
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: OtherVersion

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        product, length = self.server.product, int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if product is None:
            problem = {"kind": "not-found", "message": f"there is no route {self.command} {self.path}", "field": ""}
            self._send(404, json.dumps(problem).encode(), "application/json")
            return
        import urllib.error
        import urllib.request

        headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
        headers["Authorization"] = f"Bearer {(product.home / 'token').read_text().strip()}"
        request = urllib.request.Request(product.url + self.path, body, headers, method=self.command)
        try:
            with urllib.request.urlopen(request) as found:
                status, kind, text = found.status, found.headers["Content-Type"], found.read()
        except urllib.error.HTTPError as refused:
            status, kind, text = refused.code, refused.headers["Content-Type"], refused.read()
        if "json" in kind:
            text = json.dumps(_newer(json.loads(text))).encode()
        self._send(status, text, kind)

    do_GET = do_POST = do_DELETE = do_PUT = _answer  # noqa: N815 (as the library calls them)

    def _send(self, status: int, text: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def _newer(value: object, name: str = "") -> object:
    if isinstance(value, list):
        return [_newer(each) for each in value]
    if isinstance(value, dict):
        more = {} if name in MAPS or not value else {"added_in_9": {"anything": [1, None]}}
        return {key: _newer(each, key) for key, each in value.items()} | more
    return value


@pytest.mark.parametrize("verb", ASKS_THE_SERVER)
def test_an_older_server_without_the_route(verb: str, kaiwo: Type, tmp_path: Path) -> None:
    server = OtherVersion(None)
    done = kaiwo("--server", server.url, *words(verb, tmp_path, ROOT / "examples" / "job.yaml"))
    server.shutdown()
    assert done.code == 1, done
    assert one_sentence(done.err)
    assert "internal error" not in done.err


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Two nodes; `runs` has one of them, and `waits` waits for more than there is."""
    product = Product(tmp_path_factory.mktemp("home"))
    assert product("submit", "runs", "--gpus", "8", "--", "sh", "-c", "echo hello 日本; exec sleep 600").code == 0
    assert product("submit", "waits", "--gpus", "8", "--pods", "3", "--simulate", "1h", "-l", "team=vision").code == 0
    assert product("wait", "runs", "--for", "running", "--timeout", "30s").code == 0
    yield product
    product("cancel", "runs")
    product.stop()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ASKS_THE_SERVER)
def test_a_newer_server_with_more_fields(verb: str, product: Product, kaiwo: Type, tmp_path: Path) -> None:
    line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
    server = OtherVersion(product)
    newer, same = kaiwo("--server", server.url, *line), product(*line)
    server.shutdown()
    assert newer.code == same.code, (newer, same)
    assert "internal error" not in newer.err


@pytest.mark.slow
def test_a_server_that_was_restarted_answers_every_verb_as_before(tmp_path: Path) -> None:
    product = Product(tmp_path / "home")
    product("submit", "runs", "--gpus", "8", "--simulate", "1h")
    product("submit", "waits", "--gpus", "8", "--pods", "3", "--simulate", "1h")
    lines = [words(verb, tmp_path, ROOT / "examples" / "job.yaml") for verb in ASKS_THE_SERVER]
    before = [product(*line).code for line in lines]
    product.up.kill()
    product.up.communicate()
    product.start()
    after = [product(*line).code for line in lines]
    product.stop()
    assert list(zip(lines, after, strict=True)) == list(zip(lines, before, strict=True))


# Terminals and pipes.


def on_screen(product: Product, line: list[str], width: int, **env: str) -> Screen:
    """What the line shows in a terminal of this width. A screen with keys is left with `q`."""
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
        os.environ.update(product.env | {"TERM": "xterm", "COLUMNS": str(width)} | env)
        if "NO_COLOR" not in env:
            del os.environ["NO_COLOR"]
        os.execv(KAIWO, [str(KAIWO), *line])
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is closed when the program ends
        while part := os.read(terminal, 65536):
            shown += part
            if line[0] == "top" and b"runs" in shown:
                os.write(terminal, b"q")
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    return Screen(os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n"))


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(set(LINES) - SCREENS))
def test_lines_fit_the_terminal(verb: str, product: Product, tmp_path: Path) -> None:
    line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
    for width in WIDTHS:
        shown = on_screen(product, line, width)
        assert "Traceback" not in shown.text
        assert shown.code in (0, 1, 2, 3), shown
        wide = [
            row for row in ESCAPE.sub("", shown.text).splitlines() if wcswidth(row) > width and _has_columns(row, width)
        ]
        assert verb in TABS_OF or not wide, (width, wide)


def _has_columns(row: str, width: int) -> bool:
    """A sentence may be longer, and the terminal wraps it; columns would be torn. Paths and commands stay whole."""
    is_copied = any(len(word) > width // 2 for word in row.split()) or "kaiwo " in row
    return not is_copied and re.search(r"\S {2,}\S", row) is not None


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(LINES))
def test_no_colour_where_none_is_wanted(verb: str, product: Product, tmp_path: Path) -> None:
    line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
    piped = product(*line)
    assert "\x1b" not in piped.out + piped.err
    if verb != "top":
        plain = on_screen(product, line, 80, NO_COLOR="1")
        assert not re.search(r"\x1b\[[0-9;]*m", plain.text), plain.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", sorted(verb for verb in LINES if re.search(r" (gone|runs|waits|default|t-none)\b", LINES[verb]))
)
def test_odd_names_are_one_sentence(verb: str, product: Product, kaiwo: Type, tmp_path: Path) -> None:
    for odd in ODD_NAMES:
        line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
        at = next(
            at for at, word in enumerate(line) if word in ("gone", "runs", "waits", "t-none", "default", "default=1")
        )
        done = kaiwo("--home", str(product.home), *line[:at], odd, *line[at + 1 :])
        assert done.code in (0, 1, 2, 3), (odd, done)
        assert "internal error" not in done.err, (odd, done)
        if done.code:
            assert done.err, (odd, done)


# Ctrl-C.


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(set(LINES) - SCREENS))
def test_ctrl_c_at_any_moment_is_silent(verb: str, product: Product, tmp_path: Path) -> None:
    """Also while it imports: there the default of the signal holds. Only Python's own start is out of its hands."""
    line = words(verb, tmp_path, ROOT / "examples" / "job.yaml")
    moments = random.Random(verb)
    for _ in range(2 * SIZE):
        process = subprocess.Popen(
            [KAIWO, *line],
            env=product.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        moment_s = moments.uniform(0.0, 0.4)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment_s)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "/kaiwo/" not in err.replace(str(KAIWO), "") or "Traceback" not in err, (moment_s, err)
        assert process.returncode in (0, 1, 2, 3, 130, -signal.SIGINT), (moment_s, process.returncode, err)


def one_sentence(text: str) -> bool:
    return text.startswith("kaiwo: ") and text.count("\n") == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
