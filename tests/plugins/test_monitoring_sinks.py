"""Sinks turn samples into text, and Kaiwo writes it; one that misbehaves is set aside."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kaiwo.plugins.contract import MonitoringSample, QueueSample
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.runtime.plugin_worker import monitoring_sinks
from kaiwo.runtime.plugin_worker.monitoring_sinks import SinkFiles, feed_sinks, sample_of, write_sample
from kaiwo.snapshot.cluster_state import ClusterState
from tests.worlds import World

T = TypeVar("T")
SAMPLE = MonitoringSample(1, 2, 3, 3, 8_000, 0, 0, 0)


class Says:
    name, version = "says", "1"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def sink(self, sample: MonitoringSample) -> str:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


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
    assert write_sample(Says(text), SAMPLE, SinkFiles(tmp_path)) == ""
    assert written(tmp_path) == expected


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (5, "returned int; expected text"),
        (None, "returned NoneType; expected text"),
        ("x" * (monitoring_sinks.MAX_TEXT + 1), "is the most"),
        (PluginFaultError("says", "did not answer"), "did not answer"),
        (ValueError("no"), "raised ValueError: no"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, answer: Any, words: str) -> None:
    assert words in write_sample(Says(answer), SAMPLE, SinkFiles(tmp_path))
    assert written(tmp_path) == ""


def test_a_full_file_is_kept_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring_sinks, "MAX_BYTES", 10)
    files = SinkFiles(tmp_path)
    for text in ("12345678\n", "9\n", "10\n"):
        files.append("says", text)
    assert written(tmp_path) == "9\n10\n"
    assert (tmp_path / "sinks" / "says.log.1").read_text() == "12345678\n"


class Loop:
    ready = True

    def clock(self) -> tuple[int, int]:
        return 60, 4

    async def ask(self, question: Callable[[ClusterState], T]) -> T:
        return question(World(nodes=1).state)


def test_sinks_are_fed_and_a_broken_one_is_set_aside(tmp_path: Path) -> None:
    sinks, aside = [Says("line")], []

    async def story() -> None:
        feeding = asyncio.create_task(
            feed_sinks(Loop(), tmp_path, lambda: sinks, lambda name, why: aside.append((name, why)), 0.01)
        )
        while not written(tmp_path):
            await asyncio.sleep(0.01)
        sinks[0].answer = 5
        while not aside:
            await asyncio.sleep(0.01)
        feeding.cancel()

    asyncio.run(asyncio.wait_for(story(), 60))
    assert written(tmp_path).startswith("line\n")
    assert aside[0] == ("says", "returned int; expected text")
