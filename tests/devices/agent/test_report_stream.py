"""The agent's stream to Kaiwo: encrypted, with a token, and there again after every break."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kaiwo.devices.agent import report_stream as stream_module
from kaiwo.devices.agent.node_agent import NodeAgent
from kaiwo.devices.agent.options import AgentOptions
from kaiwo.devices.agent.report_stream import ReportStream, ReportTarget
from kaiwo.devices.agent_messages import Correction, GpuSample, Hello, Sample
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import Share
from tests.devices.agent.conftest import Start
from tests.devices.agent.report_receiver import TOKEN, Receiver, make_certificate
from tests.devices.amd_trees import PCI, address
from tests.devices.fake_inventory import fake_inventory
from tests.waiting import PATIENCE_S, wait_until

HELLO = Hello("node-1", "1", "boot", fake_inventory(count=2))
FIXED = Correction("node-1", "team", "a", "uid", (Share("x", 1000, 1),), "because")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MIN_BACKOFF_S", 0.02)
    monkeypatch.setattr(stream_module, "LISTEN_S", 0.02)
    monkeypatch.setattr(stream_module, "MAX_BACKOFF_S", 0.1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def receiver(certificate: Path) -> Iterator[Receiver]:
    found = Receiver(certificate)
    yield found
    found.stop()


@pytest.fixture
def open_stream(certificate: Path, tmp_path: Path) -> Iterator[Callable[..., ReportStream]]:
    opened: list[ReportStream] = []

    def open_one(url: str, said: list[str] | None = None, **more: str) -> ReportStream:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        fields = {"token_file": str(tmp_path / "token"), "ca_file": str(certificate), **more}
        found = ReportStream(
            ReportTarget(url, "node-1", **fields), lambda: HELLO, (said if said is not None else []).append
        )
        found.start()
        opened.append(found)
        return found

    yield open_one
    for one in opened:
        one.close()


def sample(number: int) -> Sample:
    return Sample("node-1", number, 0.0, (GpuSample("a"),))


def test_lines_arrive_as_they_are_sent(receiver: Receiver, open_stream: Callable[..., ReportStream]) -> None:
    stream = open_stream(receiver.url)
    receiver.wait_for(Hello)
    for number in range(5):
        stream.send(sample(number))
        receiver.wait_for(Sample, number + 1)
    stream.send(FIXED)
    receiver.wait_for(Correction)
    assert receiver.lines == [HELLO, *map(sample, range(5)), FIXED]
    assert receiver.paths == ["/api/agents/node-1/reports"]


def test_a_request_ends_now_and_then_and_the_next_begins(
    receiver: Receiver, open_stream: Callable[..., ReportStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "STREAM_S", 0.1)
    said: list[str] = []
    open_stream(receiver.url, said)
    receiver.wait_for(Hello, 3)
    assert said == []


def test_a_kaiwo_that_is_restarted_is_found_again(
    receiver: Receiver, certificate: Path, open_stream: Callable[..., ReportStream]
) -> None:
    said: list[str] = []
    stream = open_stream(receiver.url, said)
    stream.send(sample(1))
    receiver.wait_for(Sample)
    receiver.is_rude = True
    receiver.stop()
    while not said:
        stream.send(sample(2))
        time.sleep(0.01)
    stream.send(FIXED)
    stream.send(sample(3))
    again = Receiver(certificate, receiver.port)
    try:
        again.wait_for(Sample)
        assert isinstance(again.lines[0], Hello)
        assert again.of(Correction) == [FIXED]  # told late, and told
        assert again.of(Sample)[0] == sample(3)  # the newest; what is past is past
    finally:
        again.stop()


def test_a_server_that_hangs_up_gets_everything_in_the_end(
    receiver: Receiver, open_stream: Callable[..., ReportStream]
) -> None:
    receiver.is_rude = True
    stream = open_stream(receiver.url)
    stream.send(FIXED)
    receiver.wait_for(Hello, 3)
    receiver.is_rude = False
    receiver.wait_for(Correction)
    stream.send(sample(9))
    receiver.wait_for(Sample)


def test_a_wrong_token_is_told_and_a_renewed_one_is_used(
    receiver: Receiver, open_stream: Callable[..., ReportStream], tmp_path: Path
) -> None:
    said: list[str] = []
    receiver.token = "another"
    stream = open_stream(receiver.url, said)
    while not any("401" in line for line in said):
        stream.send(sample(1))
        time.sleep(0.01)
    assert any("401 Unauthorized: the token is not known; renew it" in line for line in said), said
    (tmp_path / "token").write_text("another")
    stream.send(sample(2))
    receiver.wait_for(Sample)


@pytest.mark.parametrize("odd", [b"tok1\ntok2\n", "tök\n".encode(), b"\xff\xfe", b"", b"a b\n", b"a\x00b"])
def test_a_token_file_that_is_odd_for_a_moment_does_not_end_the_stream(
    receiver: Receiver, open_stream: Callable[..., ReportStream], tmp_path: Path, odd: bytes
) -> None:
    path = tmp_path / "odd"
    path.write_bytes(odd)
    said: list[str] = []
    stream = open_stream(receiver.url, said, token_file=str(path))
    wait_until(lambda: len(said) > 1)  # it was tried again
    assert len(set(said)) == 1
    assert f"{path} does not contain a token on a single line" in said[0]
    assert receiver.paths == []
    path.write_text(f"{TOKEN}\n")
    stream.send(sample(1))
    receiver.wait_for(Sample)


def test_a_server_that_nobody_vouches_for_gets_no_token(
    receiver: Receiver, open_stream: Callable[..., ReportStream], tmp_path: Path
) -> None:
    said: list[str] = []
    open_stream(receiver.url, said, ca_file=str(make_certificate(tmp_path, "elsewhere")))
    wait_until(lambda: bool(said))
    assert "certificate verify failed" in said[0].lower()
    assert receiver.paths == []


@pytest.mark.parametrize(
    "url", ["http://kaiwo.example:8080", "http://10.0.0.7", "kaiwo.example", "ftp://x", "https://"]
)
def test_the_token_never_travels_in_the_clear(url: str) -> None:
    with pytest.raises(ConfigError):
        ReportStream(ReportTarget(url, "n", token="t"), lambda: HELLO, print)


def test_an_ill_gpu_is_told_within_a_second_or_so(
    receiver: Receiver, certificate: Path, tree: Path, start_agent: Start
) -> None:
    start_agent(
        kubelet_folder="", server=receiver.url, token=TOKEN, ca_file=str(certificate), interval_s=0.2, node="node-1"
    )
    receiver.wait_for(Sample)
    hello = receiver.of(Hello)[0]
    assert isinstance(hello, Hello)
    assert [gpu.id for gpu in hello.inventory.gpus] == [address(number) for number in range(4)]
    (tree / PCI / address(1) / "ras" / "gfx_err_count").write_text("ue: 7\nce: 0\n")
    began, seen = time.monotonic(), len(receiver.of(Sample))
    while True:
        line = receiver.wait_for(Sample, seen + 1)[-1]
        assert isinstance(line, Sample)
        seen = len(receiver.of(Sample))
        if line.gpus[1].health == "failed":
            break
        assert time.monotonic() - began < PATIENCE_S
    assert "7 uncorrectable" in line.gpus[1].reason


def test_an_agent_lives_without_its_kaiwo(tree: Path) -> None:
    said: list[str] = []
    agent = NodeAgent(AgentOptions("node-1", str(tree), server="https://localhost:1", interval_s=0.01), said.append)
    agent.stop()
    agent.run()
    assert agent.sample.number >= 1
