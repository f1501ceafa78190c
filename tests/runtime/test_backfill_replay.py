"""Cycles that plan starts, fill gaps and stop who stays too long replay to the same plan."""

from pathlib import Path

import pytest

from kaiwo.history import Journal
from kaiwo.model.events import Event, NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.plan import EvictionCause
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.replay import replay

GPUS = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(8))


def work(name: str, pods: int, gpus: int, estimate_s: int) -> WorkloadChanged:
    return WorkloadChanged(Workload(f"default/{name}", (Role(Request(gpus=gpus), count=pods),), estimate_s=estimate_s))


@pytest.mark.parametrize("segment_bytes", [1, 2**23])
def test_planned_starts_replay(tmp_path: Path, segment_bytes: int) -> None:
    nodes = [NodeChanged(Node(f"node-{at}", cpu_milli=64_000, memory_mib=2**20, gpus=GPUS)) for at in range(3)]
    story: list[tuple[int, list[Event]]] = [
        (0, [QueueChanged(Queue("default")), *nodes, work("old", 1, 8, 600), work("older", 1, 8, 900)]),
        (1, [work("gang", 3, 8, 3600)]),
        (2, [work("filler", 1, 1, 100), work("long", 1, 1, 5000)]),
        (50, [WorkloadGone("default/older"), PodGone("default/older", "main-0")]),
        (580, []),
        (600, [PodGone("default/filler", "main-0"), WorkloadGone("default/old"), PodGone("default/old", "main-0")]),
    ]
    numbers, causes, promised = [], set(), set()
    with Journal(tmp_path / "journal", segment_bytes=segment_bytes) as journal:
        scheduler = CycleRunner(journal)
        for now_s, events in story:
            scheduler.state.patch(events)
            scheduler.journal_events(events)
            while decision := scheduler.cycle(now_s):
                numbers.append(decision.summary.number)
                causes |= {each.cause for each in decision.plan.evictions}
                promised |= {each.start_s for each in decision.plan.promises}
        assert "default/gang" in scheduler.state.pods
    assert causes == {EvictionCause.DEADLINE}
    assert promised == {900, 600}
    for number in numbers:
        result = replay(str(tmp_path), number)
        assert result.now == result.then, number
