"""One scrape of a real endpoint, and of endpoints that mean harm: they drip, never end, redirect or want a token."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kaiwo.telemetry.exporters import scrape as scraping
from kaiwo.telemetry.exporters.scrape import NodeReading, ScrapeJob, ScrapeTarget, pause_s, scrape, sends_in_the_clear
from tests.telemetry.exporters.test_gpu_readings import AMD

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


class Endpoint:
    """Answers each connection with what a test says."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer, self._listener = answer, socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics"
        self.heads: list[str] = []
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                self.heads.append(peer.recv(65_536).decode())
                try:
                    self._answer(peer)
                except OSError:  # it was hung up on
                    continue


@pytest.fixture
def endpoint() -> Iterator[Callable[[Callable[[socket.socket], None]], Endpoint]]:
    opened: list[Endpoint] = []

    def make(answer: Callable[[socket.socket], None]) -> Endpoint:
        opened.append(Endpoint(answer))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


Make = Callable[[Callable[[socket.socket], None]], Endpoint]


def test_a_scrape_has_the_gpus_and_sends_the_token(endpoint: Make, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    it = endpoint(lambda peer: peer.sendall(OK + f"Content-Length: {len(AMD)}\r\n\r\n{AMD}".encode()))
    found = scrape(ScrapeTarget("n", it.url, str(tmp_path / "token")), 5.0)
    assert (found.node, len(found.gpus), found.problem) == ("n", 2, "")
    assert "Authorization: Bearer secret" in it.heads[0]


def test_a_token_is_never_sent_in_the_clear_to_another_machine(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    found = scrape(ScrapeTarget("n", "http://192.0.2.1:1/metrics", str(tmp_path / "token")), 5.0)
    assert "only sent over https://" in found.problem
    assert sends_in_the_clear("http://gpu-1:9400")
    assert not sends_in_the_clear("https://gpu-1:9400")
    assert not sends_in_the_clear("http://[::1]:9400")


def test_an_answer_that_never_ends_is_cut(endpoint: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "MAX_BYTES", 1 << 20)

    def flood(peer: socket.socket) -> None:
        peer.sendall(OK + b"\r\n")
        while True:
            peer.sendall(b"gpu_gfx_activity 1\n" * 4096)

    assert "sends more than 1 MiB" in scrape(ScrapeTarget("n", endpoint(flood).url), 60.0).problem


def test_an_answer_that_drips_is_given_up(endpoint: Make) -> None:
    stopped = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.sendall(OK + b"\r\n")
        while not stopped.wait(0.02):
            peer.sendall(b"#")

    assert "takes longer than 0.3 s" in scrape(ScrapeTarget("n", endpoint(drip).url), 0.3).problem
    stopped.set()


@pytest.mark.parametrize(
    "piece", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H", OK + b"Transfer-Encoding: chunked\r\n\r\n1;"]
)
@pytest.mark.parametrize("rest", [b"", b"Connection: close\r\n"])
def test_a_head_that_never_ends_is_given_up(endpoint: Make, piece: bytes, rest: bytes) -> None:
    stopped = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.sendall(piece.replace(b"\r\n\r\n", b"\r\n" + rest + b"\r\n"))
        while not stopped.wait(0.02):
            peer.sendall(piece if b"100" in piece else b"x")

    began = time.monotonic()
    assert "takes longer than 0.3 s" in scrape(ScrapeTarget("n", endpoint(drip).url), 0.3).problem
    assert time.monotonic() - began < 5
    stopped.set()


def test_a_token_of_two_lines_is_not_shown(endpoint: Make, tmp_path: Path) -> None:
    it = endpoint(lambda peer: peer.sendall(OK + b"\r\n"))
    for text in ("T0-very-secret\nsecond line", "T0-very-secret \u00e9"):
        (tmp_path / "token").write_text(text, encoding="utf-8")
        problem = scrape(ScrapeTarget("n", it.url, str(tmp_path / "token")), 5.0).problem
        assert "T0-very" not in problem
        assert "is not one line of ASCII text" in problem
    assert it.heads == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", "it answers 302"),
        (b"nonsense\r\n\r\n", "nonsense"),
        (OK + b"Content-Length: 5\r\n\r\nup 1\n", "exporter of AMD or NVIDIA"),
        (b"", "Remote end closed connection"),
    ],
)
def test_other_answers_are_problems_with_the_address(endpoint: Make, answer: bytes, problem: str) -> None:
    it = endpoint(lambda peer: peer.sendall(answer))
    found = scrape(ScrapeTarget("n", it.url), 5.0)
    assert found.gpus == ()
    assert it.url in found.problem
    assert problem in found.problem


def test_silent_nodes_delay_nobody(endpoint: Make) -> None:
    """Sixty of them would take all threads for two seconds in each round."""
    good = endpoint(lambda peer: peer.sendall(OK + f"Content-Length: {len(AMD)}\r\n\r\n{AMD}".encode()))
    with socket.create_server(("127.0.0.1", 0), backlog=512) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/metrics"
        targets = (*(ScrapeTarget(f"silent-{number}", url) for number in range(60)), ScrapeTarget("good", good.url))
        readings: list[NodeReading] = []
        stop = threading.Event()
        job = ScrapeJob(targets, every_s=0.1, timeout_s=0.5)
        thread = threading.Thread(target=scraping.run, args=(job, readings.append, stop))
        thread.start()
        time.sleep(6)
        stop.set()
        thread.join(30)
    assert sum(each.node == "good" for each in readings) >= 12
    asked = [sum(each.node == target.node for each in readings) for target in targets[:-1]]
    assert min(asked) >= 1


def test_who_does_not_answer_is_asked_again_within_a_minute() -> None:
    assert [pause_s(10, failures) for failures in (0, 1, 2, 3, 4, 1000)] == [10, 10, 20, 40, 60, 60]
    assert pause_s(300, 9) == 300
