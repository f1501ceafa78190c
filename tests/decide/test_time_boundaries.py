"""The last second before a time and the first one at it: cool-downs, planned starts, stops of the last hour, expiry."""

import pytest

from kaiwo.decide.make_room.preemption_cooldown import cooldown_of
from kaiwo.decide.planned_starts.backfill import LEAD_S, next_planned_moment_s, outranks
from kaiwo.model.events import StoppedForOthers
from kaiwo.model.obstacle import Reason
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.snapshot.capacity_timeline import OVERDUE_S
from kaiwo.snapshot.timed_changes import expired_workloads, next_timed_change_s
from tests.worlds import World

HOUR_S = 3_600


def stopped(name: str, at_s: int, queues: tuple[str, ...] = (), is_moved: bool = False) -> StoppedForOthers:
    return StoppedForOthers(f"default/{name}", at_s, queues, is_moved)


@pytest.mark.parametrize(
    ("stopped_s", "delay_s", "now_s", "until"),
    [
        (None, 0, 0, None),
        (100, 0, 129, (130, Reason.HELD_OFF)),
        (100, 0, 130, None),
        (None, 15, 14, (15, Reason.PATIENT)),
        (None, 15, 15, None),
        (100, 150, 129, (150, Reason.PATIENT)),  # the later one counts
        (130, 150, 129, (160, Reason.HELD_OFF)),
    ],
)
def test_a_workload_that_was_stopped_or_is_patient_stops_no_others_until_then(
    stopped_s: int | None, delay_s: int, now_s: int, until: tuple[int, Reason] | None
) -> None:
    world = World()
    if stopped_s is not None:
        world.tell(stopped("w", stopped_s))
    workload = Workload("default/w", (), preemption_delay_s=delay_s)
    found = cooldown_of(world.state, workload, Policy(hold_off_s=30), now_s)
    assert (found and (found.until_s, found.obstacle.reason)) == until


def test_the_last_stop_counts_in_whatever_order_stops_are_read_and_moves_do_not() -> None:
    world = World().tell(stopped("w", 50), stopped("w", 40), stopped("w", 60, is_moved=True))
    assert world.state.last_stop["default/w"].at_s == 50
    again = stopped("w", 50, ("lab",))
    assert world.tell(again).state.last_stop["default/w"] == again  # of the same second the last that was read


@pytest.mark.parametrize(("later_s", "kept"), [(HOUR_S - 1, 2), (HOUR_S, 1)])
def test_a_queue_remembers_the_stops_of_an_hour(later_s: int, kept: int) -> None:
    world = World().tell(stopped("a", 10, ("lab",)), stopped("b", 10 + later_s, ("lab",)))
    assert len(world.state.recent_stops["lab"]) == kept


def test_the_next_moment_of_a_planned_start() -> None:
    start = PlannedStart("default/w", 1_000, ())
    moments = (1_000 - LEAD_S, 1_000, 1_000 + OVERDUE_S)
    assert next_planned_moment_s([start], moments[0] - 1) == moments[0]
    for before, after in zip(moments, (*moments[1:], 0), strict=True):
        assert next_planned_moment_s([start], before) == after
    other = PlannedStart("default/x", 1_500, ())
    assert next_planned_moment_s([other, start], moments[0]) == min(1_000, 1_500 - LEAD_S)


@pytest.mark.parametrize(
    ("queue", "priority", "comes_first"),
    [("lab", 9, False), ("lab", 10, False), ("lab", 11, True), ("other", 11, False)],
)
def test_only_more_important_work_of_the_same_queue_outranks(queue: str, priority: int, comes_first: bool) -> None:
    planned = Workload("default/planned", (), queue="lab", priority=10)
    assert outranks(Workload("default/w", (), queue=queue, priority=priority), planned) == comes_first


def test_an_allocation_expires_in_its_second() -> None:
    world = World().submit("w", gpus_each=1, expires_s=50).submit("later", gpus_each=1, expires_s=80)
    world.decide()
    assert (expired_workloads(world.state, 49), next_timed_change_s(world.state, 49)) == ([], 50)
    assert (expired_workloads(world.state, 50), next_timed_change_s(world.state, 50)) == (["default/w"], 80)
    assert next_timed_change_s(world.state, 80) == 0
