"""The system's clock is set while the scheduler runs: reservations are in wall time, durations in seconds that pass."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.clusters.local import LocalCluster
from kaiwo.history import Journal
from kaiwo.model.events import ClockMoved, StoppedForOthers
from kaiwo.model.plan import Plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload_record import Program, WorkloadState
from kaiwo.runtime.loop import scheduling_loop
from kaiwo.runtime.loop.past_usage_tracker import PastUsageTracker
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kinds import some_nodes, work
from tests.waiting import PATIENCE_S, until

NOW_S, HOUR_S = 1_800_000_000, 3600
REAL = [replace(some_nodes(1)[0], name="box", labels={})]


class Machine:
    """Its clocks stand still until they are moved; a Kaiwo runs on it."""

    def __init__(self, home: Path) -> None:
        self.wall_s, self.ticks_s = float(NOW_S), 5000.0
        self.cluster = LocalCluster(home / "home", REAL, ticks=lambda: self.ticks_s, wall=lambda: self.wall_s)
        self.loop = SchedulingLoop(self.cluster, Journal(home / "journal"))

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds
        self.ticks_s += seconds
        self.cluster._store_time()
        self.cluster._wake.set()  # it sleeps until its next run ends, in real seconds
        self.loop.wake()

    def set_clock(self, by_s: int) -> None:
        self.wall_s += by_s
        self.loop.wake()

    async def submit(self, name: str, **changes: Any) -> None:
        """Simulated work that takes two hours and all GPUs."""
        await self.cluster.work.submit(
            [(work(name, request=Request(gpus=len(REAL[0].gpus)), **changes), Program(simulated_s=2 * HOUR_S))]
        )

    async def reserve(self, start_s: int, end_s: int = 0) -> None:
        whole = Reservation("r", nodes=("box",), owner=ReservationOwner(user="ada"), start_s=start_s, end_s=end_s)
        await self.cluster.work.put([], [], reservations=[whole])

    def runs(self, name: str) -> bool:
        return self.cluster.record(f"default/{name}").state is WorkloadState.RUNNING

    async def settled(self) -> None:
        """Two more cycles, and the clock was followed."""
        for _ in range(2):
            self.loop.wake()
            await asyncio.sleep(0.05)
        await until(lambda: abs(self.cluster.now_s() - self.wall_s) < 60 or self.wall_s < NOW_S // 2)


@contextlib.asynccontextmanager
async def running(home: Path) -> AsyncIterator[Machine]:
    machine = Machine(home)
    task = asyncio.create_task(machine.loop.run())
    try:
        yield machine
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await machine.cluster.close()


def play(story: Callable[[Machine], object], home: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(PATIENCE_S), running(home) as machine:
            await story(machine)  # type: ignore[misc]

    asyncio.run(test())


def test_a_step_ahead_begins_a_reservation_at_its_time_of_the_calendar(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        await machine.submit("long")
        await until(lambda: machine.runs("long"))
        await machine.reserve(NOW_S + HOUR_S + 60)
        machine.set_clock(HOUR_S)
        await machine.settled()
        assert machine.runs("long"), "it is a minute before the start"
        machine.sleep(61)
        await until(lambda: not machine.runs("long"))
        assert machine.cluster.work.reservations()[0].start_s == NOW_S + HOUR_S + 60

    play(story, tmp_path)


def test_a_step_back_just_before_a_reservation_delays_it_by_as_much(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        await machine.submit("long")
        await until(lambda: machine.runs("long"))
        await machine.reserve(NOW_S + 120)
        machine.sleep(110)
        machine.set_clock(-HOUR_S)
        machine.sleep(20)  # by seconds that passed it is due; by the calendar it is not
        await machine.settled()
        assert machine.runs("long")
        machine.sleep(HOUR_S)
        await until(lambda: not machine.runs("long"))

    play(story, tmp_path)


def test_a_clock_that_was_wrong_and_is_corrected_takes_a_reservation_back(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        await machine.reserve(NOW_S + 1800, NOW_S + 2 * HOUR_S)
        machine.set_clock(HOUR_S)
        await machine.settled()
        await machine.submit("bob", user="bob")
        await machine.settled()
        assert not machine.runs("bob"), "the node is ada's"
        machine.set_clock(-HOUR_S)
        await until(lambda: machine.runs("bob"))

    play(story, tmp_path)


def test_a_step_over_the_end_of_a_reservation_ends_it(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        await machine.reserve(NOW_S - 60, NOW_S + 1800)
        await machine.submit("bob", user="bob")
        await machine.settled()
        assert not machine.runs("bob")
        machine.set_clock(HOUR_S)
        await until(lambda: machine.runs("bob"))

    play(story, tmp_path)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 40 * 86_400])
def test_no_run_ends_earlier_or_later_and_no_age_changes(tmp_path: Path, step_s: int) -> None:
    async def story(machine: Machine) -> None:
        await machine.submit("long")
        await until(lambda: machine.runs("long"))
        await machine.submit("next")
        machine.sleep(600)
        machine.set_clock(step_s)
        await machine.settled()
        assert machine.cluster.now_s() - machine.cluster.record("default/long").started_s == 600
        (pod,) = machine.loop.state.pods["default/long"].values()
        assert machine.cluster.now_s() - pod.since_s == 600
        assert machine.cluster.now_s() - machine.loop.state.workloads["default/next"].submitted_s == 600
        machine.sleep(2 * HOUR_S - 601)
        await machine.settled()
        assert machine.runs("long"), "a second is left"
        machine.sleep(2)
        await until(lambda: machine.runs("next"))
        assert machine.loop.health.failures == 0

    play(story, tmp_path)


def test_a_small_step_and_a_time_that_nobody_believes_move_nothing(tmp_path: Path) -> None:
    async def story(machine: Machine) -> None:
        for step_s in (59, -59, -NOW_S):
            machine.wall_s = NOW_S + step_s
            assert await machine.cluster.follow_system_clock() == 0
        for step_s in (60, -60):
            machine.wall_s = NOW_S + step_s
            assert await machine.cluster.follow_system_clock() == step_s
            machine.wall_s = NOW_S
            assert await machine.cluster.follow_system_clock() == -step_s

    play(story, tmp_path)


def test_an_idle_scheduler_follows_the_clock_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_loop, "CLOCK_CHECK_S", 0.05)

    async def story(machine: Machine) -> None:
        await until(lambda: machine.loop.ready)
        machine.wall_s += HOUR_S  # nobody wakes the loop
        await until(lambda: machine.cluster.now_s() == NOW_S + HOUR_S)

    play(story, tmp_path)


def test_no_plan_is_decided_between_the_step_and_its_events(tmp_path: Path) -> None:
    """A plan contains times: one of the old clock would keep a place for an hour too long."""

    async def story(machine: Machine) -> None:
        seen: list[tuple[int, int]] = []
        apply = machine.cluster.apply

        async def checked(plan: Plan) -> None:
            state = machine.loop.state
            newest_s = max((each.submitted_s for each in state.workloads.values()), default=0)
            seen.append((newest_s, machine.cluster.now_s()))
            await apply(plan)

        machine.cluster.apply = checked  # type: ignore[method-assign]
        for number in range(6):
            machine.set_clock(HOUR_S if number % 2 else -HOUR_S)
            await machine.submit(f"w{number}")
            await machine.settled()
        assert seen
        assert all(newest_s <= now_s < newest_s + HOUR_S for newest_s, now_s in seen), seen

    play(story, tmp_path)


def test_what_the_scheduler_remembers_stays_as_long_ago() -> None:
    state = ClusterState()
    state.patch([StoppedForOthers("default/w", 5000, ("lab",))])
    state.patch([ClockMoved(-HOUR_S)])
    assert state.last_stop["default/w"].at_s == 5000 - HOUR_S
    assert [each.at_s for each in state.recent_stops["lab"]] == [5000 - HOUR_S]


def test_past_usage_goes_on_after_the_clock_was_set_back(tmp_path: Path) -> None:
    from kaiwo.runtime.loop.past_usage_tracker import PastUsageFile

    policy = replace(DEFAULT_POLICY, past_use_half_life_s=3600, past_use_strength_milli=1000)
    tracker = PastUsageTracker.of(policy, PastUsageFile(str(tmp_path)))
    assert tracker is not None
    tracker.update(ClusterState(), NOW_S)
    tracker.move_times(-HOUR_S)
    assert tracker._at_s == NOW_S - HOUR_S
