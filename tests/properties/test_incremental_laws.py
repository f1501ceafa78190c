"""What is kept from one cycle to the next, or known without looking at everything, never changes an answer."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.decide.obstacles.availability import AvailabilityCache, availability_in
from kaiwo.decide.placement.node_fit import may_fit, pods_that_fit
from kaiwo.decide.placement.place_pods import Placer
from kaiwo.decide.placement.shape_scores import ShapeScores, fitting, scores_of, scoring_of
from kaiwo.model.events import NodeChanged, PodGone, WorkloadChanged
from kaiwo.model.gpus.gpu import MAX_SHARE_MEMORY
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.properties.strategies import states
from tests.worlds import World


@st.composite
def busy_worlds(draw: st.DrawFn) -> World:
    """More work than fits; some of it demands isolation, may not be preempted, or is protected by a budget."""
    events = draw(states(most_nodes=4, most_workloads=20))
    world = World(nodes=0)
    for event in events:
        if isinstance(event, WorkloadChanged):
            event = WorkloadChanged(draw(other_terms(event.workload)))
        elif isinstance(event, NodeChanged) and draw(st.integers(0, 5)) == 0:
            labels = {**event.node.labels, MAX_SHARE_MEMORY: draw(st.sampled_from(["1Gi", "30Gi"]))}
            event = NodeChanged(replace(event.node, labels=labels))
        world.tell(event)
    world.now_s = 5
    return world


@st.composite
def other_terms(draw: st.DrawFn, workload: Workload) -> Workload:
    grade = draw(st.sampled_from(["", "", "", "cu-mask"]))
    roles = tuple(
        replace(role, request=replace(role.request, least_grade=grade if not role.request.is_exclusive else ""))
        for role in workload.roles
    )
    return replace(
        workload,
        roles=roles,
        preemptible=draw(st.sampled_from([True, True, False])),
        may_go=draw(st.sampled_from([-1, -1, 0, 1])),
    )


def one_change(world: World, data: st.DataObject) -> None:
    """Something ends, comes, or gets other terms."""
    names = sorted(world.state.pods.keys() & world.state.workloads.keys()) or sorted(world.state.workloads)
    happening = data.draw(st.sampled_from(["change", "finish", "lose a pod", "lose a node", "wait"]))
    if happening == "finish" and world.state.pods:
        world.finish(data.draw(st.sampled_from(sorted(world.state.pods))).removeprefix("default/"))
    elif happening == "lose a pod" and world.state.pods:
        name = data.draw(st.sampled_from(sorted(world.state.pods)))
        world.tell(PodGone(name, data.draw(st.sampled_from(sorted(world.state.pods[name])))))
    elif happening == "lose a node" and len(world.state.node_objects) > 1:
        world.lose_node(data.draw(st.sampled_from(sorted(world.state.node_objects))))
    elif happening == "change" and names:
        workload = world.state.workloads[data.draw(st.sampled_from(names))]
        priority = data.draw(st.sampled_from([0, 50, 100]))
        world.tell(WorkloadChanged(replace(data.draw(other_terms(workload)), priority=priority)))
    else:
        world.now_s += data.draw(st.sampled_from([1, 2_000]))


def decided(state: ClusterState, now_s: int) -> bytes:
    """The plan of a cycle that tries everything."""
    state.retry_all_classes()
    return encode_plan(decide(state.snapshot(now_s)))


@given(busy_worlds(), st.data())
def test_a_cycle_that_repairs_what_it_knew_decides_like_one_that_knows_nothing(
    world: World, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(1, 5))):
        forgetful = world.state.fork()
        forgetful.caches.clear()
        assert decided(world.state, world.now_s) == decided(forgetful, world.now_s)
        world.decide()
        one_change(world, data)


@given(busy_worlds(), st.data())
def test_the_counts_of_preemptible_work_are_those_of_all_work_that_runs(world: World, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 5))):
        world.decide()
        one_change(world, data)
        state = world.state
        running = [state.workloads[name] for name in state.pods if name in state.workloads]
        counted = Counter((each.queue, each.may_go != 0, each.priority) for each in running if each.preemptible)
        assert state.preemptible._counts == counted
        units = VictimUnits(state, world.now_s, DEFAULT_POLICY)
        world.snapshot()
        assert set(units.rows.tolist()) <= set(units.possible_rows.tolist())


@given(busy_worlds(), st.data())
def test_no_node_takes_a_pod_that_may_not_fit(world: World, data: st.DataObject) -> None:
    world.decide()
    one_change(world, data)
    view = WorkingCopy(world.snapshot()).view
    for workload in world.state.workloads.values():
        for role in workload.roles:
            for row in view.all_rows.tolist():
                nodes = np.array([row])
                assert may_fit(view, role.request, nodes) or not pods_that_fit(view, role.request, nodes).any()


@st.composite
def shares(draw: st.DrawFn) -> Request:
    amounts = draw(st.sampled_from([(10, 0), (20, 0), (400, 0), (1000, 2_000), (1000, 60_000), (300, 9_000)]))
    return Request(0, 0, 1, *amounts, least_grade=draw(st.sampled_from(["", "", "cu-mask"])))


@st.composite
def shared_worlds(draw: st.DrawFn) -> World:
    """Shares of few devices: tiny ones that get no limits, others that demand them, nodes that bound them."""
    world = World(nodes=0)
    for number in range(draw(st.integers(1, 2))):
        bound = draw(st.sampled_from([{}, {}, {MAX_SHARE_MEMORY: "30Gi"}]))
        world.node(f"node-{number}", gpus=draw(st.integers(1, 2)), labels=bound)
    for number in range(draw(st.integers(3, 12))):
        world.submit(f"w{number}", request=draw(shares()))
    return world


@given(st.one_of(busy_worlds(), shared_worlds()), st.data())
def test_requests_that_look_alike_are_offered_what_each_of_them_would_be(world: World, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        world.decide()
        one_change(world, data)
    for number, want in enumerate(data.draw(st.lists(shares(), max_size=4))):
        world.submit(f"new-{number}", request=want)
    state, snapshot = world.state, world.snapshot()
    start, view = WorkingCopy(snapshot).view, WorkingCopy(snapshot).view
    offers = AvailabilityCache(state, start, view)
    shapes = [need.shape for found in state.backlog.by_key.values() for need in found.needs]
    for shape in shapes:
        kept, anew = offers.of(shape), availability_in(view, state.backlog.shapes[shape], view.all_rows)
        for name in ("now", "devices", "largest_mib"):
            assert getattr(kept, name).tolist() == getattr(anew, name).tolist()


@given(st.one_of(busy_worlds(), shared_worlds()), st.data())
def test_slots_and_scores_stay_those_of_the_nodes_as_they_are(world: World, data: st.DataObject) -> None:
    """After changes between cycles, and after placements within one."""
    world.decide()
    one_change(world, data)
    state, snapshot, active = world.state, world.snapshot(), BUILTIN.active(DEFAULT_POLICY)
    working = WorkingCopy(snapshot)
    scores = ShapeScores(state, WorkingCopy(snapshot).view, working, active)
    placer, view = Placer(working, scores, active), working.view
    for found in state.backlog.by_key.values():
        for need in found.needs:
            placer.place(need.shape, state.backlog.shapes[need.shape], need.missing)
            for shape in (each.shape for other in state.backlog.by_key.values() for each in other.needs):
                want, now = state.backlog.shapes[shape], scores.scored(shape)
                slots = fitting(view, want, view.all_rows, active, now.allowed)
                assert (now.slots.tolist(), now.room) == (slots.tolist(), int(slots.sum()))
                anew = view.with_amounts(view.all_rows, view.free.copy(), view.gpus.copy())
                scoring = scoring_of(anew, want, active)
                assert now.score.tolist() == scores_of(anew, want, view.all_rows, scoring, slots).tolist()
