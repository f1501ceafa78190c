"""Nodes that may go, and even load: what moves, what stays, and that a run of each plan keeps every law."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.defragment.plan_for_goal import plan_for_goal
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, MovePlan, MoveState
from kaiwo.model.events import ReservationChanged
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation
from tests.conftest import SIZE
from tests.decide.defragment.runs import abort, begin, carry_on, run_of, states
from tests.worlds import World, audit

SPREAD = Policy(placement="spread")


def plan_of(world: World, goal: DefragmentationGoal) -> MovePlan:
    return plan_for_goal(world.state.fork().snapshot(world.now_s), world.policy, BUILTIN, goal)


def nodes_goal(nodes: int) -> DefragmentationGoal:
    return DefragmentationGoal(GoalKind.NODES, nodes=nodes)


def loads(world: World) -> dict[str, int]:
    """GPUs in use, by node."""
    found = dict.fromkeys(world.state.node_objects, 0)
    for pods in world.state.pods.values():
        for pod in pods.values():
            found[pod.node] += len(pod.devices)
    return found


def spread_out(nodes: int = 4, **changes: object) -> World:
    world = World(nodes=nodes, gpus_per_node=4, policy=SPREAD)
    world.now_s = 10
    for number in range(nodes):
        world.submit(f"w{number}", gpus_each=1, **changes).settle()
    assert set(loads(world).values()) == {1}
    return world


def test_nodes_become_free_one_step_for_each() -> None:
    world = spread_out()
    plan = plan_of(world, nodes_goal(3))
    assert [len(step.moves) for step in plan.steps] == [1, 1, 1]
    freed = [step.frees for step in plan.steps]
    begin(world, plan.steps)
    carry_on(world)
    assert [loads(world)[node] for node in freed] == [0, 0, 0]
    assert max(loads(world).values()) == 4


def test_no_pod_goes_to_a_node_that_is_free_already() -> None:
    world = spread_out().node("idle", gpus=4)
    plan = plan_of(world, nodes_goal(2))
    assert plan.free_nodes == ("idle",)
    assert len(plan.steps) == 1
    assert all(move.node != "idle" for step in plan.steps for move in step.moves)
    assert not plan_of(world, nodes_goal(1)).steps


def test_nodes_with_work_that_may_not_move_or_with_reservations_stay() -> None:
    assert not plan_of(spread_out(may_go=0), nodes_goal(1)).steps
    world = spread_out(2)
    world.tell(ReservationChanged(Reservation("kept", nodes=("node-0", "node-1"), start_s=5_000, end_s=9_000)))
    assert not plan_of(world, nodes_goal(1)).steps


def test_the_fullest_nodes_give_to_the_emptiest() -> None:
    world = World(nodes=2, gpus_per_node=8)
    world.now_s = 10
    for number in range(8):
        world.submit(f"w{number}", gpus_each=1)
    world.settle()
    assert sorted(loads(world).values()) == [0, 8]
    plan = plan_of(world, DefragmentationGoal(GoalKind.BALANCE, most_moves=4))
    before, after = plan.load_gap_ppm
    assert (before, after) == (500_000, 250_000)
    begin(world, plan.steps)
    carry_on(world)
    assert sorted(loads(world).values()) == [2, 6]


def test_an_even_cluster_stays_as_it_is() -> None:
    assert not plan_of(spread_out(), DefragmentationGoal(GoalKind.BALANCE)).steps


@st.composite
def worlds(draw: st.DrawFn) -> World:
    policy = Policy(
        placement=draw(st.sampled_from(("pack", "spread"))),
        moves_at_once=draw(st.integers(1, 4)),
        actions=draw(st.sampled_from((("allocate",), ("allocate", "reclaim", "preempt", "stale-gangs")))),
    )
    world = World(nodes=0, policy=policy)
    world.now_s = 10
    world.queue(
        "default", gpu_limit=draw(st.sampled_from((6_000, 100_000))), quota_milli=draw(st.sampled_from((0, 6_000)))
    )
    for number in range(draw(st.integers(2, 5))):
        world.node(f"n{number}", gpus=draw(st.integers(1, 4)), labels={"rack": f"r{number % 2}"})
    for number in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(("share", "single", "pair", "gang", "near")))
        changes: dict[str, object] = {
            "may_go": draw(st.sampled_from((-1, -1, -1, 0, 1))),
            "preemptible": draw(st.integers(0, 5)) > 0,
            "priority": draw(st.sampled_from((0, 0, 5))),
        }
        if kind == "share":
            world.submit(f"w{number}", request=Request(gpus=1, gpu_milli=500), **changes)
        elif kind in ("single", "pair"):
            world.submit(f"w{number}", gpus_each=1 if kind == "single" else 2, **changes)
        else:
            levels = {"required_level": "rack"} if kind == "near" else {}
            world.submit(f"w{number}", pods=2, gpus_each=1, **changes, **levels)
        if draw(st.booleans()):
            world.settle()
    world.settle()
    return world


def racks_of(world: World, name: str) -> set[str]:
    nodes = world.state.node_objects
    return {nodes[pod.node].labels["rack"] for pod in world.state.pods.get(name, {}).values()}


def check_laws(world: World, protected: dict[str, dict[str, tuple[object, ...]]]) -> None:
    assert not audit(world.state)
    for name, workload in world.state.workloads.items():
        if workload.required_level and len(world.state.pods.get(name, {})) == 2:
            assert len(racks_of(world, name)) == 1, f"{name} is torn apart"
    for name, places in protected.items():
        for pod, place in places.items():
            now = world.state.pods[name][pod]
            assert (now.node, now.devices) == place, f"{name} moved"


GOALS = (
    DefragmentationGoal(),
    DefragmentationGoal(GoalKind.NODES, nodes=2),
    DefragmentationGoal(GoalKind.BALANCE, most_moves=4),
)


@given(worlds(), st.sampled_from(GOALS), st.integers(0, 6))
@settings(max_examples=100 * SIZE, deadline=None)
def test_every_law_holds_at_every_moment_of_a_run_and_after_an_abort(
    world: World, goal: DefragmentationGoal, cycles_before_abort: int
) -> None:
    plan = plan_of(world, goal)
    state = world.state
    protected = {
        name: {pod.name: (pod.node, pod.devices) for pod in pods.values()}
        for name, pods in state.pods.items()
        if not state.workloads[name].preemptible or not state.workloads[name].may_go
    }
    before = {name: sorted(pods) for name, pods in state.pods.items()}
    if not plan.steps:
        return
    begin(world, plan.steps)
    evicted: list[tuple[str, str]] = []
    for cycle in range(40):
        if run_of(world).is_over:
            break
        if cycle == cycles_before_abort:
            abort(world)
        found = world.decide()
        at_once = [each for each in found.evictions if each.cause == "defragment"]
        assert len(at_once) <= world.policy.moves_at_once
        for name in {each.workload for each in at_once}:
            limit = state.workloads[name].may_go
            assert limit < 0 or sum(each.workload == name for each in at_once) <= limit
        evicted += [(each.workload, each.pod) for each in at_once]
        check_laws(world, protected)
        world.let_go()
        check_laws(world, protected)
        world.now_s += 1
    assert run_of(world).is_over
    assert MoveState.MOVING not in states(world)
    assert len(set(evicted)) == len(evicted), "a pod was moved twice"
    world.settle()
    check_laws(world, protected)
    if world.policy.actions == ("allocate",):
        assert all(sorted(state.pods.get(name, {})) == pods for name, pods in before.items()), "work was lost"
    assert not state.nominations


def test_a_plan_counts_the_waiting_work_that_it_leaves_to_its_planned_start() -> None:
    world = World(nodes=2, gpus_per_node=4, policy=SPREAD)
    world.submit("a", gpus_each=2, estimate_s=3600).submit("b", gpus_each=2, estimate_s=3600).settle()
    world.submit("large", gpus_each=4, estimate_s=3600).settle()
    assert set(world.state.planned_starts) == {"default/large"}
    plan = plan_of(world, DefragmentationGoal())
    assert (plan.steps, plan.waiting, plan.planned) == ((), 0, 1)
    assert plan_of(world, DefragmentationGoal(GoalKind.WORKLOAD, workload="default/large")).moves == 1
