"""All that can go wrong with the server is one helpful sentence, never a traceback."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Type
from tests.cli.stub_server import Stub, problem_body

GARBAGE = {
    "not http": b"220 mail.example.org ESMTP\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "a short body": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
    "html": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
    "another json": b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n[1, 2, 3, 4",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "a bad gateway": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad",
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a chunk too short": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
    "a long line": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
    "a header without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "a strange status": b"HTTP/1.1 abc OK\r\n\r\n",
}


class Babbler:
    """Says the same bytes to everybody, then hangs up; with no bytes to say it keeps silent."""

    def __init__(self, says: bytes, is_mute: bool = False) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.says, self.is_mute, self.kept = says, is_mute, list[socket.socket]()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            connection.recv(65536)
            if self.is_mute:
                self.kept.append(connection)
                continue
            connection.sendall(self.says)
            connection.close()


@pytest.fixture
def babbler(request: pytest.FixtureRequest) -> Iterator[Babbler]:
    babbler = Babbler(request.param)
    yield babbler
    babbler.socket.close()


@pytest.mark.parametrize("babbler", GARBAGE.values(), ids=GARBAGE, indirect=True)
@pytest.mark.parametrize("args", [["status"], ["get", "workloads"], ["cancel", "x"], ["logs", "-f", "x"]], ids=" ".join)
def test_garbage_is_one_sentence(babbler: Babbler, kaiwo: Type, args: list[str]) -> None:
    done = kaiwo("--server", babbler.url, *args)
    if args[0] == "logs" and done.code == 0:  # a log may be any text
        return
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert babbler.url in done.err
    assert "kaiwo doctor" in done.err or "closed the connection" in done.err


def test_no_server_is_said_with_the_way_out(kaiwo: Type, home: Path) -> None:
    said = f"kaiwo: no kaiwo is running (looked in {home}/server.json); start one with: kaiwo up\n"
    for args in (
        ["status"],
        ["get", "w"],
        ["submit", "--", "true"],
        ["run", "--", "true"],
        ["logs", "x"],
        ["wait", "x"],
    ):
        assert kaiwo(*args) == (1, "", said)


def test_a_server_file_of_a_dead_server_is_said(kaiwo: Type, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    (home / "server.json").write_text(f'{{"url": "{url}", "pid": 1}}')
    done = kaiwo("status")
    assert done.code == 1
    assert f"no kaiwo is running (looked in {home}/server.json: {url}, connection refused)" in done.err
    assert "kaiwo up" in done.err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_server_file_is_said(kaiwo: Type, home: Path, text: str) -> None:
    (home / "server.json").write_text(text)
    done = kaiwo("status")
    assert done.code == 1
    assert "server.json is damaged" in done.err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:99999999", "http://[::", "http://x:port"])
def test_a_bad_address_is_invalid_input(kaiwo: Type, url: str) -> None:
    done = kaiwo("status", "--server", url)
    assert done.code == 2
    assert "is not an address" in done.err


def test_an_unknown_host_is_said(kaiwo: Type) -> None:
    done = kaiwo("status", "--server", "http://no-such-host.invalid:7600")
    assert done.code == 1
    assert "nothing answers at http://no-such-host.invalid:7600" in done.err
    assert "check --server" in done.err


def test_a_silent_server_is_given_up(kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    babbler = Babbler(b"", is_mute=True)
    monkeypatch.setattr("kaiwo.cli.verb_base.DEFAULT_TIMEOUT_S", 0.2)
    done = kaiwo("status", "--server", babbler.url)
    assert done.code == 1
    assert "did not answer within 0.2 s" in done.err
    babbler.socket.close()


def test_the_environment_names_the_server_too(stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAIWO_SERVER", "http://127.0.0.1:9")
    assert "check KAIWO_SERVER" in kaiwo("status").err
    assert kaiwo("status", "--server", stub.url).code == 0
    assert kaiwo("--server", stub.url.removeprefix("http://"), "status").code == 0


def test_home_can_be_said_before_and_after_the_verb(
    stub: Stub, kaiwo: Type, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAIWO_HOME", "/nowhere")
    assert kaiwo("status").code == 1
    assert kaiwo("status", "--home", str(home)).code == 0
    assert kaiwo("--home", str(home), "nodes", "cordon", "node-1").code == 0
    assert kaiwo("nodes", "cordon", "node-1", "--home", str(home)).code == 0


def test_a_mistake_of_our_own_is_said_and_can_be_looked_into(
    stub: Stub, kaiwo: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kaiwo.cli.verbs.inspect.status.status_lines", lambda view: 1 / 0)
    done = kaiwo("status")
    assert done.code == 1
    assert "set KAIWO_DEBUG=1 to see the traceback" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("KAIWO_DEBUG", "1")
    assert "Traceback" in kaiwo("status").err


def test_a_verb_that_is_not_there_is_met_with_the_nearest(kaiwo: Type) -> None:
    assert kaiwo("sbmit") == (2, "", "kaiwo: unknown verb 'sbmit'; did you mean: kaiwo submit\n")
    assert "kaiwo --help" in kaiwo("frobnicate").err
    assert kaiwo("status", "extra").code == 2
    assert kaiwo("--nonsense").code == 2


def test_one_bound_for_the_number_of_nodes(kaiwo: Type) -> None:
    from kaiwo.clusters.local.cluster_file import virtual_nodes
    from kaiwo.model.errors import ConfigError
    from kaiwo.model.node import MAX_VIRTUAL_NODES

    assert f"1<=x<={MAX_VIRTUAL_NODES}" in kaiwo("up", "--help").out
    done = kaiwo("up", "--nodes", str(MAX_VIRTUAL_NODES + 1))
    assert done.code == 2
    assert (
        f"'--nodes': {MAX_VIRTUAL_NODES + 1} is not between 1 and {MAX_VIRTUAL_NODES}; see: kaiwo up --help" in done.err
    )
    with pytest.raises(ConfigError, match=f"between 1 and {MAX_VIRTUAL_NODES:,}"):
        virtual_nodes(MAX_VIRTUAL_NODES + 1)


def test_no_verb_shows_the_help_by_purpose(kaiwo: Type) -> None:
    done = kaiwo()
    assert done.code == 0
    found = [line.rstrip(":") for line in done.lines() if line.endswith(":") and not line.startswith(" ")]
    assert found == ["Start", "Workloads", "Inspect", "Operate", "Other", "Options"]


def test_bytes_that_are_no_text_are_invalid_input(stub: Stub, kaiwo: Type) -> None:
    for args in (["submit", "x", "--", "\udcff"], ["why", "\udcff"]):
        done = kaiwo(*args)
        assert done.code == 2
        assert "not valid UTF-8" in done.err


def test_a_503_is_passed_on(stub: Stub, kaiwo: Type) -> None:
    stub.answers["GET /status"] = (503, problem_body("broken", "kaiwo is still starting; try again in a second"))
    assert kaiwo("status") == (1, "", "kaiwo: kaiwo is still starting; try again in a second\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["submit", "x", "--pods", "many", "--", "true"], "'--pods': 'many' is not a whole number; see"),
        (["replay", "x"], "give a cycle such as 812, a range such as 800-900, or --all; not 'x'; see"),
        (["up", "--speed", "fast"], "'--speed': 'fast' is not a number; see"),
        (["up", "--port", "99999"], "'--port': 99999 is not between 0 and 65535; see"),
        (["logs", "x", "--tail", "-1"], "'--tail': -1 is less than 0; see"),
    ],
)
def test_a_number_that_is_none_is_said_in_plain_words(kaiwo: Type, args: list[str], said: str) -> None:
    done = kaiwo(*args)
    assert done.code == 2
    assert said in done.err
