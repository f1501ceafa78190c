"""What cannot be taken in is left out; the others go on, and whoever asks hears of it."""

import asyncio
from pathlib import Path

import pytest

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.history import Journal
from kaiwo.model.events import NodeChanged, NodeGone, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.loop.event_intake import EventIntake
from kaiwo.runtime.loop.loop_metrics import NOT_READY_AFTER, Health
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState
from tests.waiting import PATIENCE_S

TOO_MANY = 10**30


def node(name: str, cpu_milli: int = 64_000, **more: int) -> Node:
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(4))
    return Node(name, cpu_milli, 65_536, gpus=gpus, extended=more)


def test_a_node_that_cannot_be_counted_is_left_out_and_the_others_are_there() -> None:
    state, health = ClusterState(), Health()
    batch = [QueueChanged(UNBOUNDED_DEFAULT_QUEUE), *map(NodeChanged, (node("a"), node("b", TOO_MANY), node("c")))]
    heard = EventIntake(state, health).apply(batch)
    assert heard == [batch[0], batch[1], NodeGone("b"), batch[3]]
    state.refresh_tables()
    assert (state.nodes.names, health.left_out) == (("a", "c"), 1)


def test_a_node_that_grows_beyond_counting_goes(capsys: pytest.CaptureFixture[str]) -> None:
    state, health = ClusterState(), Health()
    intake = EventIntake(state, health)
    intake.apply([NodeChanged(node("a")), NodeChanged(node("b"))])
    state.refresh_tables()
    intake.apply([NodeChanged(node("b", strange=TOO_MANY))])
    state.refresh_tables()
    assert (state.nodes.names, health.left_out) == (("a",), 1)
    told = capsys.readouterr().err
    assert '"event": "left-out"' in told
    assert '"what": "NodeChanged b"' in told


def test_a_workload_that_cannot_stand_in_line_stops_nobody() -> None:
    def order(workload: Workload):  # type: ignore[no-untyped-def]
        if workload.name == "default/b":
            raise ValueError("no place for it")
        return ((0, 0),), ()

    state, health = ClusterState(order), Health()
    intake = EventIntake(state, health)
    work = [Workload(f"default/{name}", (Role(Request(gpus=1)),)) for name in "abc"]
    intake.apply([QueueChanged(UNBOUNDED_DEFAULT_QUEUE), NodeChanged(node("n")), *map(WorkloadChanged, work)])
    while intake.requeue_moved(10):
        pass
    assert [state.backlog.position(each.name) for each in work] == [1, 0, 2]
    assert health.left_out == 1


def test_a_loop_with_such_a_node_goes_on_and_its_journal_can_be_read(tmp_path: Path) -> None:
    async def play() -> None:
        simulated = SimulatedCluster([node("a"), node("b", TOO_MANY)])
        loop = SchedulingLoop(simulated, Journal(tmp_path / "journal"))
        task = asyncio.create_task(loop.run())
        await simulated.work.submit([(Workload("default/w", (Role(Request(gpus=1)),)), Program(simulated_s=60))])
        async with asyncio.timeout(PATIENCE_S):
            seen = -1
            while "default/w" not in loop.state.pods:
                seen = await loop.changed(seen)
        assert (loop.health.failures, loop.health.left_out, loop.state.nodes.names) == (0, 1, ("a",))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def test_only_failures_in_a_row_are_trouble() -> None:
    health = Health()
    for _ in range(NOT_READY_AFTER - 1):
        health.cycle_failed(ValueError("bad luck"))
    assert health.problem == ""
    health.cycle_ended()
    for _ in range(NOT_READY_AFTER):
        health.cycle_failed(OverflowError("too large"))
    assert (
        health.problem == "the last 3 scheduling cycles failed, the last one with OverflowError: too large; see the log"
    )
    health.cycle_ended()
    assert (health.problem, health.failures) == ("", 5)
