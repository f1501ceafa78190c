"""Sinks and metrics turn samples into text and numbers; one that misbehaves is set aside."""

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kaiwo.plugins.contract import Plugin
from kaiwo.plugins.edge_contract import Metric, MonitoringSample, QueueSample
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.runtime.edge_points import monitoring
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.edge_points.monitoring import Monitoring, ReportFiles, sample_of
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World

T = TypeVar("T")


class Says:
    """Gives this answer, or raises it."""

    name, version = "says", "1"

    def __init__(self, answer: Any, point: str = "sink") -> None:
        self.answer, self.point = answer, point
        setattr(self, point, self.say)

    def say(self, sample: MonitoringSample) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Plugins:
    def __init__(self, *plugins: Says) -> None:
        self.plugins, self.aside = list(plugins), list[tuple[str, str]]()

    def active_at(self, point: str) -> Sequence[Plugin]:
        return [each for each in self.plugins if each.point == point]

    def add_cost(self, name: str, took_us: int) -> None:
        pass

    def set_aside(self, faults: Sequence[tuple[str, str]]) -> None:
        self.aside += faults
        self.plugins = []


class Loop:
    ready = True

    def clock(self) -> tuple[int, int]:
        return 60, 4

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        return question(World(nodes=1).state)


def sampled(home: Path, plugin: Says) -> tuple[Monitoring, list[tuple[str, str]]]:
    loop, plugins = Loop(), Plugins(plugin)
    found = Monitoring(EdgeCalls(plugins, loop.ask), loop, home)
    asyncio.run(found.sample())
    return found, plugins.aside


def written(home: Path) -> str:
    path = home / "sinks" / "says.log"
    return path.read_text() if path.exists() else ""


def test_a_sample_counts_the_cluster() -> None:
    world = World(nodes=2).queue("lab", quota_milli=4_000).running("a", gpus=3, queue="lab").submit("b", gpus_each=9)
    world.decide()
    world.node("node-9", ready=False)
    sample = sample_of(world.state, 50, 7)
    assert (sample.at_s, sample.cycle, sample.nodes, sample.nodes_ready) == (50, 7, 3, 2)
    assert (sample.gpu_milli, sample.gpu_used_milli, sample.waiting, sample.running) == (24_000, 3_000, 1, 1)
    assert QueueSample("lab", 3_000, 4_000) in sample.queues


@pytest.mark.parametrize(("text", "expected"), [("a", "a\n"), ("a\nb\n", "a\nb\n"), ("", "")])
def test_the_text_is_written(tmp_path: Path, text: str, expected: str) -> None:
    _, aside = sampled(tmp_path, Says(text))
    assert (written(tmp_path), aside) == (expected, [])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (5, "Expected `str`, got `int`"),
        (None, "Expected `str`, got `null`"),
        ("x" * (monitoring.MAX_TEXT + 1), "is the most"),
        (PluginFaultError("says", "did not answer"), "did not answer"),
        (ValueError("no"), "raised ValueError: no"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, answer: Any, words: str) -> None:
    _, ((name, why),) = sampled(tmp_path, Says(answer))
    assert (name, written(tmp_path)) == ("says", "")
    assert words in why


def test_numbers_are_kept_for_the_next_scrape(tmp_path: Path) -> None:
    found, aside = sampled(tmp_path, Says([Metric("free", 2.5, "lab")], "metrics"))
    assert (found.values, aside) == ({"says": [Metric("free", 2.5, "lab")]}, [])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([Metric("free", math.nan)], "returned nan as free"),
        ([Metric("free", math.inf)], "returned inf as free"),
        ([Metric("Free GPUs", 1)], "use lower-case letters"),
        ([Metric("a", 1), Metric("a", 2)], "returned a twice"),
        ([Metric("a", 1, "x" * 201)], "a subject for a that is too long"),
        ([Metric("a", 1, "\x1b[31m")], "not printable"),
        ([Metric("a\n", 1)], "use lower-case letters"),
        ([Metric(f"m{at}", at) for at in range(1_001)], "1,000 is the most"),
        ([{"name": "a"}], "missing required field `value`"),
        ("many", "Expected `array`"),
    ],
)
def test_what_are_no_numbers_is_refused(tmp_path: Path, answer: Any, words: str) -> None:
    found, ((_, why),) = sampled(tmp_path, Says(answer, "metrics"))
    assert words in why
    assert found.values == {}


def test_a_full_file_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "MAX_BYTES", 10)
    files = ReportFiles(tmp_path)
    for text in ("12345678\n", "9\n", "10\n"):
        files.append("says", text)
    assert written(tmp_path) == "9\n10\n"
    assert (tmp_path / "sinks" / "says.log.1").read_text() == "12345678\n"


def test_a_disk_that_is_full_is_no_fault_of_the_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: ReportFiles, name: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ReportFiles, "append", fails)
    assert sampled(tmp_path, Says("line"))[1] == []
