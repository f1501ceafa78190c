"""Run times learned from history: for the same kind of work only, kept over restarts, and never taken for a limit."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain import planned_start, why
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.forecast.recent_runs import KINDS_KEPT, RUNS_KEPT, conservative_s
from kaiwo.history import Journal
from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.events import Event, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import EvictionCause
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.loop.learned_run_times import (
    FILE,
    FORECAST_FILE,
    RunTimeFile,
    RunTimes,
    kind_of,
)
from kaiwo.runtime.loop.learned_state import pack_state, unpack_state
from kaiwo.runtime.loop.replay import replay
from kaiwo.runtime.loop.scheduling_loop import SchedulingLoop
from tests.runtime.test_scheduling_loop import cluster, until
from tests.worlds import World


def work(name: str, gpus: int = 1, **changes: object) -> Workload:
    return replace(Workload(f"default/{name}", (Role(Request(gpus=gpus)),)), **changes)


def ran(run_times: RunTimes, name: str, run_s: int, now_s: int = 0, **changes: object) -> list[Event]:
    run_times.add_run_times([WorkloadChanged(work(name, **changes))], now_s)
    return run_times.add_run_times([WorkloadGone(f"default/{name}", run_s)], now_s)


def taught(*runs_s: int) -> RunTimes:
    run_times = RunTimes()
    for number, run_s in enumerate(runs_s):
        ran(run_times, f"sweep-{number}", run_s)
    return run_times


def test_nine_of_ten_runs_took_no_longer() -> None:
    assert conservative_s([]) == conservative_s([5, 5]) == 0, "too few to conclude anything"
    assert conservative_s([30, 10, 20]) == 30
    assert conservative_s(list(range(1, 11))) == 9
    assert conservative_s(list(range(1, 21))) == 18


@pytest.mark.parametrize(
    ("name", "is_like"),
    [("sweep-7", True), ("sweep-2024-11-30", True), ("sweep-x7k2p", True), ("sweep", True), ("train-7", False)],
)
def test_the_number_in_a_name_does_not_count(name: str, is_like: bool) -> None:
    assert (taught(60, 60, 60).expected_s(work(name)) == 60) == is_like


def test_a_name_of_numbers_keeps_its_first_part() -> None:
    assert kind_of(work("-7")).owner.endswith("default/-7")
    assert kind_of(work("7-7")).owner.endswith("default/7")


def test_a_hostile_name_costs_no_time() -> None:
    """Each `-22222` can be read as a number or as random letters; a pattern for all of them tried every combination."""
    began = time.thread_time()
    kind_of(work("a" + "-22222" * 41 + "-a"))
    assert time.thread_time() - began < 0.1


def test_other_owners_queues_and_pods_are_other_kinds() -> None:
    run_times = taught(60, 60, 60)
    assert run_times.expected_s(work("sweep-9")) == 60
    for other in (work("sweep-9", gpus=2), work("sweep-9", user="eve"), work("sweep-9", queue="lab")):
        assert run_times.expected_s(other) == 0
    assert run_times.expected_s(replace(work("sweep-9"), name="lab/sweep-9")) == 0
    array = work("other-1", labels={ARRAY_LABEL: "sweep"})
    assert kind_of(array) == kind_of(work("sweep-1")), "the array's name counts"


def test_who_failed_or_was_cancelled_teaches_nothing() -> None:
    assert taught(60, 0, 60, 0).expected_s(work("sweep-9")) == 0


def test_those_who_live_are_told_and_those_who_come() -> None:
    run_times = RunTimes()
    run_times.add_run_times([WorkloadChanged(work("sweep-8")), WorkloadChanged(work("sweep-9", estimate_s=5))], 0)
    ran(run_times, "sweep-0", 60)
    ran(run_times, "sweep-1", 60)
    told = ran(run_times, "sweep-2", 90)
    assert told[1:] == [WorkloadChanged(work("sweep-8", learned_s=90))], "who said it itself needs nothing"
    assert run_times.add_run_times([WorkloadChanged(work("sweep-10"))], 0) == [
        WorkloadChanged(work("sweep-10", learned_s=90))
    ]
    assert ran(run_times, "sweep-3", 300, now_s=30)[1:] == [], "not more than once a minute"
    assert len(ran(run_times, "sweep-4", 300, now_s=90)[1:]) == 2
    assert ran(run_times, "sweep-5", 310, now_s=200)[1:] == [], "it would make no difference"


def test_a_restart_remembers_and_a_torn_line_does_no_harm(tmp_path: Path) -> None:
    run_times = RunTimes(RunTimeFile(str(tmp_path)))
    for number in range(3):
        ran(run_times, f"sweep-{number}", 60 + number)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'["half a li')
    assert RunTimes(RunTimeFile(str(tmp_path))).expected_s(work("sweep-9")) == 62


def test_the_memory_is_bounded() -> None:
    run_times = RunTimes()
    for number in range(KINDS_KEPT + 10):
        for _ in range(3):
            ran(run_times, f"w{number}x", 60)
    assert run_times.expected_s(work("w0x")) == 0, "the first kinds are forgotten"
    assert run_times.expected_s(work(f"w{KINDS_KEPT}x")) == 60
    run_times = taught(*[1000] * RUNS_KEPT, *[10] * RUNS_KEPT)
    assert run_times.expected_s(work("sweep-9")) == 10, "the last runs count"


@given(st.lists(st.integers(1, 100_000), min_size=3, max_size=60))
def test_the_estimate_is_a_run_that_was_and_at_most_a_tenth_took_longer(runs_s: list[int]) -> None:
    last = runs_s[-RUNS_KEPT:]
    found = taught(*runs_s).expected_s(work("sweep-999"))
    assert found in last
    assert sum(run_s > found for run_s in last) * 10 <= len(last)


# What decisions make of it.


def two_nodes() -> World:
    """One node is in use by work whose end is only known from earlier runs; a gang waits for both."""
    world = World(nodes=2).running("old", gpus=8, learned_s=600)
    world.submit("gang", pods=2, gpus_each=8, learned_s=3600)
    world.decide()
    return world


def test_a_start_is_planned_by_what_earlier_runs_took() -> None:
    world = two_nodes()
    assert world.state.planned_starts["default/gang"].start_s == 600
    said = planned_start(world.state, "default/gang", 0)
    assert "it is expected to run for 1 h, by earlier runs like it" in said


def test_it_fills_a_gap_and_goes_at_its_expected_end() -> None:
    world = two_nodes().submit("short", gpus_each=1, learned_s=500).submit("long", gpus_each=1, learned_s=900)
    world.decide()
    assert world.is_running("short")
    assert world.why("long") == [Reason.PROMISED]
    assert "as long as earlier runs like it" in why(world.state, "default/long", world.policy, 0).answer
    world.now_s = 580
    assert {each.cause for each in world.decide().evictions} == {EvictionCause.DEADLINE}


def test_work_that_may_not_be_stopped_needs_a_limit_that_is_enforced() -> None:
    world = two_nodes().queue("default", quota_milli=16_000)
    world.submit("fixed", gpus_each=1, learned_s=100, preemptible=False)
    world.submit("limited", gpus_each=1, learned_s=900, time_limit_s=300, preemptible=False)
    world.decide()
    assert not world.is_running("fixed")
    assert world.is_running("limited")


def test_the_owners_word_and_the_limit_come_first() -> None:
    world = World(nodes=2).running("old", gpus=8, estimate_s=300, learned_s=600)
    world.submit("gang", pods=2, gpus_each=8, learned_s=3600, time_limit_s=60)
    world.decide()
    promise = world.state.planned_starts["default/gang"]
    assert (promise.start_s, promise.run_s) == (300, 60)


def test_the_loop_learns_remembers_and_replays(tmp_path: Path) -> None:
    """Runs on a cluster: they end, the next one has a run time, a new process knows it, and the journal replays."""

    async def play(simulated: SimulatedCluster, names: list[str]) -> tuple[int, list[int]]:
        loop = SchedulingLoop(simulated, Journal(tmp_path / "journal"), run_times=RunTimes(RunTimeFile(str(tmp_path))))
        task = asyncio.create_task(loop.run())
        numbers: list[int] = []
        learned_s = 0
        try:
            for name in names:
                await simulated.work.submit([(work(name), Program(simulated_s=60))])
                await until(loop, lambda name=name: f"default/{name}" in loop.state.pods)
                learned_s = loop.state.workloads[f"default/{name}"].learned_s
                assert loop.last_cycle is not None
                numbers.append(loop.last_cycle.number)
                simulated.advance(60)
                await until(loop, lambda name=name: f"default/{name}" not in loop.state.workloads)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return learned_s, numbers

    learned_s, numbers = asyncio.run(play(cluster(), ["s-0", "s-1", "s-2", "s-3"]))
    assert learned_s == 60
    for number in numbers:
        result = replay(str(tmp_path), number)
        assert result.now == result.then
    learned_s, _ = asyncio.run(play(cluster(), ["s-4"]))
    assert learned_s == 60


def test_the_forecast_learns_from_every_run_and_survives_a_restart(tmp_path: Path) -> None:
    run_times = RunTimes(RunTimeFile(str(tmp_path)))
    for number in range(12):
        ran(run_times, f"sweep-{number}", 600, now_s=1_000 + number, user="ada")
    key = run_key_of(work("sweep-99", user="ada"))
    before = run_times.forecast.expect(key, 2_000)
    assert before is not None
    assert before.low_s <= 600 <= before.high_s
    run_times.save()
    assert RunTimes(RunTimeFile(str(tmp_path))).forecast.expect(key, 2_000) == before
    (tmp_path / FORECAST_FILE).write_bytes(b"damaged")
    assert RunTimes(RunTimeFile(str(tmp_path))).forecast.expect(key, 2_000) is None


def test_runs_of_another_image_are_told_apart() -> None:
    run_times = RunTimes()
    for number in range(60):
        is_new = number % 2
        image = "torch:2.8" if is_new else "torch:2.4"
        ran(run_times, f"sweep-{number}", 300 if is_new else 6_000, now_s=7_000 + number, user="ada", image=image)
    old, new = (
        run_times.forecast.expect(run_key_of(work("sweep-99", user="ada", image=image)), 8_000)
        for image in ("torch:2.4", "torch:2.8")
    )
    assert old is not None
    assert new is not None
    assert new.middle_s < 600 < 3_000 < old.middle_s


def test_only_arrivals_since_the_start_are_expected_again() -> None:
    run_times = RunTimes()
    run_times.add_run_times([WorkloadChanged(work("before", submitted_s=900))], 1_000)
    run_times.add_run_times([WorkloadChanged(work("new", submitted_s=1_100))], 1_100)
    run_times.add_run_times([WorkloadChanged(work("new", submitted_s=1_100, priority=5))], 1_200)
    run_times.add_run_times([WorkloadChanged(work("held", submitted_s=1_300, held=True))], 1_300)
    assert [each.name for each in run_times.arrivals.save().workloads] == ["default/new"]


def test_a_base_of_the_journal_keeps_which_work_was_overdue_when_it_started() -> None:
    world = World(nodes=1, gpus_per_node=1).submit("old", gpus_each=1)
    world.settle()
    world.submit("waits", gpus_each=1).settle()
    world.now_s = 86_400
    world.settle()
    world.finish("old").settle()
    assert world.state.started_overdue == {"default/waits"}
    again = unpack_state(world.state.events(), pack_state(world.state, world.policy, world.now_s), BUILTIN)
    assert again.started_overdue == {"default/waits"}
