"""The loop on a simulated cluster: events in, plans out, nothing before the state is known."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.history import Journal
from kaiwo.model.events import Event
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program, WorkloadState
from kaiwo.runtime.loop.cycle_runner import Decision
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.snapshot import Snapshot
from tests.waiting import PATIENCE_S
from tests.waiting import until as ready


def cluster() -> SimulatedCluster:
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(4))
    return SimulatedCluster([Node("node-0", 64_000, 65_536, gpus=gpus)])


def job(name: str, gpus: int) -> tuple[Workload, Program]:
    return Workload(f"default/{name}", (Role(Request(gpus=gpus)),)), Program(simulated_s=60)


async def until(loop: SchedulingLoop, condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(PATIENCE_S):
        seen = -1
        while not condition():
            seen = await loop.changed(seen)


def run(tmp_path: Path, story) -> None:  # type: ignore[no-untyped-def]
    async def play() -> None:
        simulated = cluster()
        loop = SchedulingLoop(simulated, Journal(tmp_path / "journal"))
        task = asyncio.create_task(loop.run())
        try:
            await story(loop, simulated)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def test_work_starts_ends_and_makes_room(tmp_path: Path) -> None:
    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        await simulated.work.submit([job("first", 4), job("second", 4)])
        await until(loop, lambda: "default/first" in loop.state.pods)
        assert loop.state.backlog.position("default/second") == 1
        simulated.advance(60)
        await until(loop, lambda: "default/second" in loop.state.pods)
        assert simulated.record("default/first").state is WorkloadState.SUCCEEDED

    run(tmp_path, story)


def test_a_question_sees_a_picture_that_stands_still(tmp_path: Path) -> None:
    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        await simulated.work.submit([job(f"j{number}", 1) for number in range(8)])
        await until(loop, lambda: len(loop.state.pods) == 4)
        before, after = await loop.ask(lambda state: (state.version, state.version))
        assert before == after

    run(tmp_path, story)


def test_nothing_is_decided_before_the_state_is_known(tmp_path: Path) -> None:
    """spur#745: limits not enforced while caches are cold."""

    class Slow(SimulatedCluster):
        applied: list[Plan] = []

        async def events(self) -> AsyncIterator[tuple[Event, ...]]:
            await gate.wait()
            async for batch in super().events():
                yield batch

        async def apply(self, plan: Plan) -> tuple[str, ...]:
            self.applied.append(plan)
            return await super().apply(plan)

    gate = asyncio.Event()

    async def play() -> None:
        simulated = Slow([Node("node-0", 1_000, 1_000)])
        loop = SchedulingLoop(simulated, Journal(tmp_path / "journal"))
        task = asyncio.create_task(loop.run())
        await simulated.work.submit([job("early", 0)])
        for _ in range(20):
            await asyncio.sleep(0)
        assert not loop.ready
        assert simulated.applied == []
        gate.set()
        await until(loop, lambda: "default/early" in loop.state.pods)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def test_a_cycle_that_fails_is_counted_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kaiwo.runtime.loop import scheduling_loop as module

    monkeypatch.setattr(module, "AFTER_FAILURE_S", 0.01)

    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        decide = loop._runner.decide
        failures = iter([True, True, False])

        def sometimes(snapshot):  # type: ignore[no-untyped-def]
            if next(failures, False):
                raise RuntimeError("no memory")
            return decide(snapshot)

        monkeypatch.setattr(loop._runner, "decide", sometimes)
        await simulated.work.submit([job("patient", 1)])
        await until(loop, lambda: "default/patient" in loop.state.pods)
        assert loop.health.failures == 2

    run(tmp_path, story)


def test_it_says_since_when_a_cycle_is_being_decided(tmp_path: Path) -> None:
    seen: list[float | None] = []

    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        decide = loop._runner.decide

        def watched(snapshot: Snapshot) -> Decision:
            seen.append(loop.busy_since)
            return decide(snapshot)

        loop._runner.decide = watched  # type: ignore[method-assign]
        await simulated.work.submit([job("one", 1)])
        await until(loop, lambda: "default/one" in loop.state.pods)
        assert loop.busy_since is None

    run(tmp_path, story)
    assert seen
    assert all(since is not None and since <= time.monotonic() for since in seen)


def test_an_empty_cluster_is_looked_at_only_when_something_happens(tmp_path: Path) -> None:
    """Its node came, so every class is to be tried; but there is none."""

    async def story(loop: SchedulingLoop, simulated: SimulatedCluster) -> None:
        await ready(lambda: loop.ready)
        looks = loop.phases.times["prepare"]
        await asyncio.sleep(0.2)
        before = looks.count
        await asyncio.sleep(0.5)
        assert looks.count - before <= 2
        await simulated.work.submit([job("first", 4)])
        await until(loop, lambda: "default/first" in loop.state.pods)

    run(tmp_path, story)
