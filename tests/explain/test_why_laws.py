"""`why` tells the truth: what it proposes works, less does not, and none means none."""

from collections.abc import Iterator, Mapping

import pytest
from msgspec.structs import replace

from kaiwo.explain import obstacles_of, why
from kaiwo.explain.cheapest_change import cheapest_change
from kaiwo.explain.possible_changes import (
    LEAST,
    SHARE,
    UNITS,
    ChangeKind,
    PossibleChange,
    QueueBoundRef,
    RoleSize,
    events_of,
    size_of,
)
from kaiwo.explain.verify_change import WhatIf
from kaiwo.manifests.values.quantities import MIN_FRACTION_MILLI
from kaiwo.model.events import QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.obstacle import Reason, WhyVerdict
from kaiwo.model.priority_cap import priority_cap
from kaiwo.model.queue import Queue
from tests.conftest import IS_QUICK, SIZE
from tests.explain.exhaustive_search import cheapest_by_search, is_submitted_again, submitted_again
from tests.explain.generated_worlds import waiting_world
from tests.worlds import World

RAISE_STEP = 100  # milli-GPU, of the exhaustive search


def waiting_states(count: int, **sizes: int) -> Iterator[tuple[int, World, str]]:
    """Worlds with one of their waiting workloads each, until there are enough."""
    seed = found = 0
    while found < count:
        seed += 1
        world = waiting_world(seed, **sizes)
        for name in [name for name in sorted(world.state.backlog.queued_names()) if not world.is_running(name)][:3]:
            found += 1
            yield seed, world, name


def test_a_proposed_change_starts_the_workload_every_time() -> None:
    kinds = set()
    for seed, world, name in waiting_states(100 if IS_QUICK else 1000):
        answer = why(world.state, name, world.policy, world.now_s)
        found = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s))
        change = found.change
        assert (answer.change is None) == (change is None)
        assert found.is_complete, (seed, name)  # so few nodes are searched to the end
        assert answer.searched_all
        if change is None:
            assert answer.no_change, (seed, name)
            assert answer.verdict is not WhyVerdict.UNDECIDED
            continue
        assert answer.verdict is WhyVerdict.CHANGE_FOUND
        kinds.add(change.kind)
        assert _starts_after(world, name, change), (seed, name, change)
        assert not _one_less_starts(world, name, change), (seed, name, change)
    assert IS_QUICK or kinds == {
        ChangeKind.SMALLER_SIZE,
        ChangeKind.OTHER_MODEL,
        ChangeKind.OTHER_QUEUE,
        ChangeKind.QUOTA,
        ChangeKind.STOP,
    }


def test_no_proposal_is_a_way_around_what_an_administrator_set() -> None:
    """Another queue only if it names the user or the namespace; the rest of the work stays whose and what it is."""
    for seed, world, name in waiting_states(100 if IS_QUICK else 1000):
        queues, workload = world.state.queue_objects, world.state.workloads[name]
        change = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s)).change
        if change is None or change.by == "admin":
            continue
        for told in events_of(world.state, workload, change):
            if isinstance(told, WorkloadChanged) and told.workload.name == name:
                after = told.workload
                assert replace(after, roles=workload.roles, queue=workload.queue) == workload, (seed, name, change)
                assert after.priority <= priority_cap(queues, after.queue).most, (seed, name, change)
                on_path = [queues[each] for each in _path(queues, after.queue)]
                theirs = any(after.user in each.users or "default" in each.namespaces for each in on_path)
                assert after.queue == workload.queue or theirs, (seed, name, change)
            else:
                assert not isinstance(told, QueueChanged), (seed, name, change)


def _path(queues: Mapping[str, Queue], name: str) -> Iterator[str]:
    while name in queues:
        yield name
        name = queues[name].parent


def test_an_obstacle_always_names_less_than_is_needed() -> None:
    for seed, world, name in waiting_states(100 if IS_QUICK else 1000):
        for each in obstacles_of(world.state, name, world.policy, world.now_s):
            if each.reason is Reason.NO_WAY_TO_RECLAIM:
                assert each.have >= each.need, (seed, name, each)  # the sums would do, and still there is no way
            elif each.unit in ("gpus", "milli-gpu", "mib", "milli-cpu"):
                assert each.have < each.need, (seed, name, each)
            assert each.reason is not Reason.GANG or each.need > 1, (seed, name, each)


def test_the_least_share_is_the_one_that_the_door_lets_in() -> None:
    assert LEAST[SHARE] == MIN_FRACTION_MILLI


@pytest.mark.slow
def test_exhaustive_search_agrees_on_the_cheapest_change_and_on_there_being_none() -> None:
    none = admitted = 0
    for seed, world, name in waiting_states(200 * SIZE, most_nodes=2, most_work=8):
        ours = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s))
        change = ours.change
        found = cheapest_by_search(world, name, RAISE_STEP)
        none += change is None
        if change is not None and change.kind is ChangeKind.SMALLER_SIZE and str(change.subject).endswith("memory"):
            # The search looks at some sizes of memory only; ours may find one that gives up less.
            assert found is None or found.rank >= change.rank, (seed, name, change, found)
        elif change is not None and not ours.is_complete:
            assert found is not None, (seed, name, change)
            assert found.rank <= change.rank, (seed, name, change, found)
            admitted += 1
        elif change is not None and change.kind is ChangeKind.QUOTA and found is not None and found != change:
            # The search raises bounds by whole steps; ours finds the least raise, less than one step below.
            assert found.subject == change.subject, (seed, name, change, found)
            assert 0 < found.value - change.value < RAISE_STEP, (seed, name, change, found)
        else:
            assert change == found, (seed, name, change, found)
    assert none > 0
    assert admitted < none / 10  # seldom


def _starts_after(world: World, name: str, change: PossibleChange) -> bool:
    """Applied for real: on a fresh picture from the same events, with whole cycles."""
    fresh = World(nodes=0)
    fresh.now_s = world.now_s
    fresh.tell(*world.state.events())
    fresh.settle()
    assert not fresh.is_running(name)
    told = events_of(fresh.state, fresh.state.workloads[name], change)
    if is_submitted_again(change):
        fresh.tell(WorkloadGone(name)).decide()  # others may take what was planned or kept for it
        told = [submitted_again(each, fresh.now_s) for each in told]
    fresh.tell(*told)
    fresh.decide()  # now, and not once others made room
    return fresh.is_running(name)


def _one_less_starts(world: World, name: str, change: PossibleChange) -> bool:
    """One unit less of the change, for the two kinds that have units."""
    workload = world.state.workloads[name]
    less = replace(change, value=change.value - 1)
    if isinstance(change.subject, RoleSize):
        role_name, dimension = change.subject
        role = next(role for role in workload.roles if role.name == role_name)
        less = replace(change, value=change.value + UNITS[dimension])
        if less.value >= size_of(role, dimension):
            return False
    elif change.kind is not ChangeKind.QUOTA or less.value < 1:
        return False
    return _starts_after(world, name, less)


def test_what_another_queue_would_see_of_the_nodes_does_not_rule_out_a_raise() -> None:
    world, name = waiting_world(149, most_nodes=2, most_work=8), "default/w02"  # others have planned starts
    change = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s)).change
    assert change == PossibleChange(ChangeKind.QUOTA, "admin", QueueBoundRef("default", "gpu", "", "quota"), 1000, 1000)


def test_another_model_is_proposed_where_the_wish_for_it_changes_what_others_may_plan() -> None:
    world, name = (
        waiting_world(445, most_nodes=2, most_work=8),
        "default/w02",
    )  # shares follow wishes, plans follow shares
    change = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s)).change
    assert change == PossibleChange(ChangeKind.OTHER_MODEL, "researcher", "L40S")


def test_a_size_is_proposed_where_only_the_changed_wish_counts_in_what_others_may_plan() -> None:
    world, name = waiting_world(61, most_nodes=2, most_work=8), "default/w00"  # as it is, no device is large enough
    change = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s)).change
    assert change == PossibleChange(
        ChangeKind.SMALLER_SIZE, "researcher", RoleSize("main", "gpu-memory"), 65_536, 344_640
    )


def test_a_size_that_is_refused_says_nothing_of_smaller_ones_where_its_wish_did_not_count_before() -> None:
    world, name = waiting_world(256, most_nodes=2, most_work=8), "default/w02"  # too large for any GPU, beside a plan
    change = cheapest_change(WhatIf(world.state, name, world.policy, world.now_s)).change
    assert change == PossibleChange(
        ChangeKind.SMALLER_SIZE, "researcher", RoleSize("main", "gpu-memory"), 63_536, 364_640
    )
