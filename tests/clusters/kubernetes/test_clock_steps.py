"""The clock of the scheduler's machine is set by an hour: nobody is stopped, loses a place or waits for it."""

import asyncio
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache, move_times
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.wall_time import FollowedClock, WallTime
from kaiwo.model.events import ClockMoved, Event, WorkloadChanged
from kaiwo.model.plan import EvictionCause
from kaiwo.model.policy import DEFAULT_POLICY
from tests.clusters.kubernetes.test_lost_place_stories import HOUR_S, KEPT_S, NAME, Story
from tests.waiting import run

GRACE_S = DEFAULT_POLICY.stale_gang_grace_s
both_ways = pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


class Machine:
    def __init__(self) -> None:
        self.wall_s, self.ticks_s = 1_800_000_000.0, 5_000.0

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds
        self.ticks_s += seconds

    def time(self) -> WallTime:
        return WallTime(lambda: self.wall_s, lambda: self.ticks_s)


@both_ways
def test_wall_time_jumps_only_when_the_change_is_followed(by_s: int) -> None:
    machine = Machine()
    time = machine.time()
    before_s = time.now_s()
    machine.wall_s += by_s
    machine.sleep(5)
    assert time.now_s() == before_s + 5
    assert (time.take_step(), time.now_s()) == (by_s, int(machine.wall_s))
    assert time.take_step() == 0


def test_drift_and_the_sleep_of_the_machine_are_no_change_of_the_clock() -> None:
    machine = Machine()
    time = machine.time()
    for _ in range(10):
        machine.sleep(86_400)
        machine.wall_s += 30
        assert time.now_s() == int(machine.wall_s)
    assert time.take_step() == 0


def incomplete(story: Story) -> None:
    """A lost pod's replacement fits nowhere, and no place is kept for it: the gang is in its grace period."""
    story.lose(1)
    story.replace(nodeSelector={"example.com/zone": "elsewhere"})
    story.cycle()
    for slot in list(story.cache.published.nominations.get(NAME, {})):
        story.cache.lost_places.give_up(NAME, slot)
    story.cache.gang_index.touch_all()
    story.cycle()
    assert story.cache.published.workloads[NAME].broken_since_s


def set_clock(story: Story, by_s: int) -> None:
    story.now_s += by_s
    move_times(story.cache, by_s)
    story.scheduler.state.patch([*story.cache.flush(story.now_s), ClockMoved(by_s)])


def stops(story: Story) -> int:
    plan = story.cycle()
    return 0 if plan is None else sum(each.cause is EvictionCause.STALE_GANG for each in plan.evictions)


def test_a_gang_in_its_grace_period_would_be_stopped_by_an_hour_that_did_not_pass() -> None:
    """What the following tests are about."""
    story = Story()
    incomplete(story)
    story.now_s += HOUR_S
    assert stops(story) == 3


@both_ways
def test_a_gang_has_its_grace_period_also_when_the_clock_is_set(by_s: int) -> None:
    story = Story()
    incomplete(story)
    story.now_s += GRACE_S // 2
    set_clock(story, by_s)
    assert stops(story) == 0
    story.now_s += GRACE_S - GRACE_S // 2 - 1
    assert stops(story) == 0
    story.now_s += 1
    assert stops(story) == 3


@both_ways
def test_a_place_is_kept_for_as_long_as_before(by_s: int) -> None:
    story = Story()
    story.small("small")
    story.lose(1)
    set_clock(story, by_s)
    story.now_s += KEPT_S - 1
    assert (story.starts(2), story.kept()) == ([], ["node-2"])
    story.now_s += 1
    assert story.starts(2) == [("small", "node-2")]


@both_ways
def test_a_back_off_is_as_long_as_before(by_s: int) -> None:
    story = Story()
    story.lose(1)
    story.small("late")
    story.cache.start_backoff.refuse("default/late", story.now_s, "the node had no room")
    story.cycle()
    until_s = story.scheduler.state.workloads["default/late"].not_before_s
    set_clock(story, by_s)
    assert story.scheduler.state.workloads["default/late"].not_before_s == until_s + by_s


@both_ways
def test_the_cluster_follows_its_machines_clock_with_all_that_was_measured(by_s: int) -> None:
    """The event comes last: the loop decides nothing before it has the moved times."""

    async def follow() -> tuple[int, list[Event], ClusterCache, int]:
        machine, story = Machine(), Story()
        cluster = KubernetesCluster(ClusterAccess("http://127.0.0.1:9", Trust(), FixedCredential(Credential())))
        cluster._time, cluster.cache = machine.time(), story.cache
        cluster._outbox = asyncio.Queue()
        clock = FollowedClock(cluster._time, cluster._move_times)
        story.now_s = cluster.now_s()
        incomplete(story)
        machine.wall_s += by_s
        before_s = story.cache.published.workloads[NAME].broken_since_s
        step_s = await clock.follow_system_clock()
        batches: list[Any] = []
        while not cluster._outbox.empty():
            batches += cluster._outbox.get_nowait()
        assert cluster.now_s() == int(machine.wall_s)
        assert await clock.follow_system_clock() == 0
        return step_s, batches, story.cache, before_s

    step_s, events, cache, before_s = run(follow())
    assert (step_s, events[-1]) == (by_s, ClockMoved(by_s))
    moved = [each.workload.broken_since_s for each in events if isinstance(each, WorkloadChanged)]
    assert moved[-1] == cache.published.workloads[NAME].broken_since_s == before_s + by_s
