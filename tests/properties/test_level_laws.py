"""Laws of levels: a required level holds after every plan, whatever happens; plans repeat; trials leave no trace."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.place_workload import place_workload
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.explain import obstacles_of
from kaiwo.model.events import Event, PodGone
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import Policy
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.properties.level_worlds import broken_levels, leveled_states
from tests.worlds import World, audit

policies = st.builds(
    Policy,
    placement=st.sampled_from(["pack", "pack", "spread"]),
    actions=st.permutations(["reclaim", "preempt", "consolidate", "stale-gangs"]).map(lambda all_: ("allocate", *all_)),
    hold_off_s=st.just(0),
)


def world_of(events: list[Event], policy: Policy) -> World:
    world = World(nodes=0, policy=policy)
    world.tell(*events)
    world.now_s = 5
    return world


@given(leveled_states(), policies, st.randoms(use_true_random=False))
def test_no_action_ever_breaks_a_required_level(events: list[Event], policy: Policy, chance: random.Random) -> None:
    """Starts, growth, reclaim, preemption, consolidation, and the replacement of lost pods."""
    world = world_of(events, policy)
    for _ in range(6):
        world.decide()
        world.let_go()
        assert broken_levels(world.state) == []
        assert audit(world.state) == []
        pods = sorted((name, pod) for name, all_ in world.state.pods.items() for pod in all_)
        if pods:
            world.tell(PodGone(*chance.choice(pods)))
        world.now_s += 61


@given(leveled_states(), policies)
def test_the_same_snapshot_gives_the_same_plan(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    snapshot = world.snapshot()
    assert encode_plan(decide(snapshot, policy)) == encode_plan(decide(snapshot, policy))


@given(leveled_states(), policies, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(events: list[Event], policy: Policy, order: random.Random) -> None:
    shuffled = list(events)
    order.shuffle(shuffled)
    first, second = world_of(events, policy), world_of(shuffled, policy)
    for _ in range(3):
        assert encode_plan(first.decide()) == encode_plan(second.decide())


@given(leveled_states(), policies)
def test_a_placement_that_fails_leaves_no_trace(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    snapshot = world.snapshot()
    state, active, working = world.state, BUILTIN.active(policy), WorkingCopy(snapshot)
    placer = Placer(working, ShapeScores(state, WorkingCopy(snapshot).view, working, active), active, policy)
    for name in sorted(state.workloads):
        before = (working.free.copy(), working.gpus.copy(), working.all_used.copy())
        placed = place_workload(placer, state, state.workloads[name], state.backlog.class_of(name).needs)
        after = (working.free, working.gpus, working.all_used)
        same = all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
        assert same is (placed is None)


@given(leveled_states(), policies)
def test_work_that_waits_has_an_obstacle(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    for _ in range(4):
        world.decide()
        world.let_go()
    for name in world.state.backlog.queued_names():
        assert obstacles_of(world.state, name, policy, world.now_s)
