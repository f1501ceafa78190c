"""Laws of sub-groups: less than the tree demands never starts, and no work is left with half a sub-group."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.plan import encode_plan
from kaiwo.model.workload import (
    SubGroupTree,
    Workload,
    branch_has_minimum,
    has_required_pods,
    pods_per_role,
    subgroup_problem,
    subgroup_tree,
)
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.subgroup_choices import ways_to_grow, ways_to_start
from tests.properties.sub_group_worlds import arrivals, tree, tree_world
from tests.worlds import World, audit

seeds = st.integers(0, 1 << 32)


@given(seeds)
def test_a_tree_starts_whole_and_loses_whole_sub_groups(seed: int) -> None:
    """Where a plan moves or stops what just begins to grow, the rest of it comes in a later cycle."""
    world = tree_world(seed)
    whole: set[str] = set()
    for wave in arrivals(seed):
        world.tell(*wave)
        for _ in range(6):
            plan = world.decide()
            world.let_go()
            assert audit(world.state) == []
            started, stopped = ({each.workload for each in part} for part in (plan.starts, plan.evictions))
            under_way = (started & stopped) | set(world.state.nominations)
            whole = {name for name in (whole | started) - under_way if name in world.state.pods}
            for name in whole:
                _assert_whole(world, name)


@given(seeds)
def test_the_same_events_in_another_order_give_the_same_plans(seed: int) -> None:
    first, second = tree_world(seed), tree_world(seed)
    for wave in arrivals(seed):
        other = list(wave)
        random.Random(seed).shuffle(other)
        first.tell(*wave)
        second.tell(*other)
        for _ in range(3):
            assert encode_plan(first.decide()) == encode_plan(second.decide())
            first.let_go(), second.let_go()


@given(seeds)
def test_every_way_is_enough_and_none_has_a_pod_too_many(seed: int) -> None:
    draw = random.Random(seed)
    groups, roles = tree(draw)
    assert subgroup_problem(groups, roles) == ""
    workload = Workload("default/w", roles, groups=groups)
    up = [draw.randint(0, role.count) for role in roles]
    every = ways_to_start(workload, up)
    for adds in every:
        then = list(up)
        for number, pods in adds:
            then[number] += pods
        assert all(have <= role.count for have, role in zip(then, roles, strict=True))
        assert branch_has_minimum(subgroup_tree(groups, roles), roles, then)
    assert (every[0] == ()) == branch_has_minimum(subgroup_tree(groups, roles), roles, up)
    if not every[0]:
        assert all(sum(pods for _, pods in step) for step in ways_to_grow(workload, up))


@given(seeds)
def test_a_tree_that_could_start_is_not_forgotten(seed: int) -> None:
    world = tree_world(seed)
    for wave in arrivals(seed):
        world.tell(*wave).settle()
    fresh = ClusterState()
    fresh.patch(world.state.events())
    other = World(nodes=0, policy=world.policy)
    other.state = fresh
    other.now_s = world.now_s
    assert other.decide().starts == ()


def _assert_whole(world: World, name: str) -> None:
    workload = world.state.workloads[name]
    pods = world.state.pods.get(name, {})
    if not pods:
        return
    assert has_required_pods(workload, pods), f"{name} runs with {sorted(pods)}"
    if workload.groups:
        _assert_no_halves(workload, subgroup_tree(workload.groups, workload.roles), pods_per_role(workload, pods))


def _assert_no_halves(workload: Workload, branch: SubGroupTree | int, up: list[int]) -> None:
    if not _has_pods(branch, up):
        return
    assert branch_has_minimum(branch, workload.roles, up), f"{workload.name} has half of {branch}"
    if not isinstance(branch, int):
        for child in branch.children:
            _assert_no_halves(workload, child, up)


def _has_pods(branch: SubGroupTree | int, up: list[int]) -> bool:
    return up[branch] > 0 if isinstance(branch, int) else any(_has_pods(child, up) for child in branch.children)
