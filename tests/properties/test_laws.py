"""Laws that hold in every world."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.place_workload import place_workload
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.explain import obstacles_of
from kaiwo.model.events import Event, PodGone, WorkloadChanged
from kaiwo.model.plan import Plan, encode_plan
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import StaleSnapshotError
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.properties.strategies import states
from tests.worlds import World, audit

STRATEGIES = ("first-fit", "best-fit", "worst-fit", "round-robin", "load-balanced", "fragmentation-aware")
policies = st.builds(
    Policy,
    gpu_strategy=st.sampled_from(STRATEGIES),
    placement=st.sampled_from(["pack", "spread"]),
    steps=st.sampled_from([1, 3, 20_000]),
)


def world_of(events: list[Event], policy: Policy = DEFAULT_POLICY) -> World:
    world = World(nodes=0, policy=policy)
    world.tell(*events)
    world.now_s = 5
    return world


@given(states(), policies)
def test_no_plan_promises_more_than_there_is(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    for _ in world.settle():
        assert audit(world.state) == []


@given(states(), policies)
def test_no_gang_starts_halfway(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    started: dict[str, list[str]] = {}
    for plan in world.settle():
        for eviction in plan.evictions:  # it may be moved: stopped, and started elsewhere
            if eviction.pod in started.get(eviction.workload, ()):
                started[eviction.workload].remove(eviction.pod)
        for start in plan.starts:
            started.setdefault(start.workload, []).append(start.pod)
    for name, pods in started.items():
        for role in world.state.workloads[name].roles:
            assert not pods or sum(pod.rsplit("-", 1)[0] == role.name for pod in pods) >= role.needed
        assert len(pods) == len(set(pods))


@given(states(), st.randoms(use_true_random=False))
def test_the_order_in_which_events_arrive_does_not_matter(events: list[Event], order: random.Random) -> None:
    shuffled = list(events)
    order.shuffle(shuffled)
    first, second = world_of(events), world_of(shuffled)
    for _ in range(3):
        assert encode_plan(first.decide()) == encode_plan(second.decide())


@given(states())
def test_the_same_snapshot_gives_the_same_plan(events: list[Event]) -> None:
    world = world_of(events)
    snapshot = world.snapshot()
    assert encode_plan(decide(snapshot)) == encode_plan(decide(snapshot))


@given(states())
def test_a_plan_survives_its_encoding(events: list[Event]) -> None:
    plan = world_of(events).decide()
    assert msgspec.msgpack.decode(encode_plan(plan), type=Plan) == plan


@given(states(), policies)
def test_every_waiting_workload_has_an_obstacle(events: list[Event], policy: Policy) -> None:
    world = world_of(events, policy)
    world.settle()
    for name in (*world.state.backlog.queued_names(), *world.state.backlog.gated):
        assert obstacles_of(world.state, name, policy, world.now_s)


@given(states())
def test_decide_does_not_change_the_snapshot(events: list[Event]) -> None:
    world = world_of(events)
    snapshot = world.snapshot()
    before = _arrays(world.state)
    decide(snapshot)
    assert _arrays(world.state) == before


@given(states())
def test_undo_leaves_no_trace(events: list[Event]) -> None:
    world = world_of(events)
    snapshot = world.snapshot()
    working = WorkingCopy(snapshot)
    active = BUILTIN.active(DEFAULT_POLICY)
    placer = Placer(working, ShapeScores(world.state, WorkingCopy(snapshot).view, working, active), active)
    before = (working.free.tobytes(), working.gpus.tobytes(), working.view.queue_used.tobytes())
    for workload in world.state.workloads.values():
        if workload.queue in working.queues.row:
            with working.trial():
                place_workload(placer, world.state, workload, world.state.needs_of(workload))
            assert (working.free.tobytes(), working.gpus.tobytes(), working.view.queue_used.tobytes()) == before


@given(states(), st.data())
def test_a_patched_picture_equals_one_built_anew(events: list[Event], data: st.DataObject) -> None:
    world = world_of(events)
    _live_a_little(world, data)
    rebuilt = ClusterState()
    rebuilt.patch(world.state.events())
    world.snapshot(), rebuilt.snapshot(world.now_s)
    assert _arrays(world.state) == _arrays(rebuilt)
    assert set(world.state.backlog.queued_names()) == set(rebuilt.backlog.queued_names())
    assert world.state.backlog.gated == rebuilt.backlog.gated
    assert audit(world.state) == []


@given(states(), st.data())
def test_nothing_that_could_start_is_forgotten(events: list[Event], data: st.DataObject) -> None:
    """What a cycle remembers as stuck is stuck: a picture without memory starts nothing more."""
    world = world_of(events)
    _live_a_little(world, data)
    world.settle()
    fresh = ClusterState()
    fresh.patch(world.state.events())
    assert decide(fresh.snapshot(world.now_s)).starts == ()


@given(states())
def test_an_idle_cycle_does_nothing(events: list[Event]) -> None:
    world = world_of(events)
    world.settle()
    assert world.decide() == Plan()


@given(states(), st.data())
def test_a_fork_lives_its_own_life(events: list[Event], data: st.DataObject) -> None:
    world = world_of(events)
    world.settle()
    before = (_arrays(world.state), encode_plan(decide(world.snapshot())))
    other = World(nodes=0)
    other.state, other.now_s = world.state.fork(), world.now_s
    _live_a_little(other, data)
    other.settle()
    assert (_arrays(world.state), encode_plan(decide(world.snapshot()))) == before


def _live_a_little(world: World, data: st.DataObject) -> None:
    """Some cycles with things happening in between."""
    for _ in range(data.draw(st.integers(1, 4))):
        world.decide()
        names = sorted(world.state.workloads)
        happening = data.draw(st.sampled_from(["finish", "lose", "lose a pod", "hold", "wait"]))
        if happening == "finish" and names:
            world.finish(data.draw(st.sampled_from(names)))
        elif happening == "lose" and len(world.state.node_objects) > 1:
            world.lose_node(data.draw(st.sampled_from(sorted(world.state.node_objects))))
        elif happening == "lose a pod" and world.state.pods:
            name = data.draw(st.sampled_from(sorted(world.state.pods)))
            world.tell(PodGone(name, data.draw(st.sampled_from(sorted(world.state.pods[name])))))
        elif happening == "hold" and names:
            workload = world.state.workloads[data.draw(st.sampled_from(names))]
            world.tell(WorkloadChanged(msgspec.structs.replace(workload, held=not workload.held)))
        elif happening == "wait":
            world.now_s += data.draw(st.sampled_from([1, 10, 2_000]))
        world.decide()


def _arrays(state: ClusterState) -> list[bytes]:
    nodes, queues = state.nodes, state.queues
    arrays = (nodes.free, nodes.gpus, nodes.schedulable, nodes.gpu_total, nodes.cpu_size, queues.used, queues.limit)
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def test_a_snapshot_goes_stale_when_the_picture_is_patched() -> None:
    world = World()
    snapshot = world.snapshot()
    world.submit("late", gpus_each=1)
    with pytest.raises(StaleSnapshotError, match="take a new snapshot"):
        decide(snapshot)
