"""Laws of recovery: levels hold whatever fails, no swap is larger than needed, and plans repeat."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.decide import decide
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import Event, NodeGone, NodeSpeedsMeasured, PortsMeasured, ProgressReported, TopologyChanged
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.performance import NodeSpeed, ProgressReport
from kaiwo.model.plan import EvictionCause, Plan, encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES, RELEASING_PHASES, Pod, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.conftest import SIZE
from tests.decide.recovery.failures import fail, fail_gpu, remember, restore
from tests.properties.exhaustive_swaps import smallest_swap_of
from tests.properties.level_worlds import FABRIC, broken_levels, leveled_states
from tests.properties.test_level_laws import policies, world_of
from tests.worlds import World, audit


def something_fails(world: World, chance: random.Random) -> None:
    names = sorted(world.state.node_objects)
    match chance.choice(["node", "nodes", "gpu", "unreachable", "back", "gone", "ports", "slow", "nothing"]):
        case "node":
            fail(world, chance.choice(names))
        case "nodes":
            fail(world, *chance.sample(names, min(len(names), 3)))
        case "unreachable":
            fail(world, chance.choice(names), fenced=False)
        case "gpu":
            node = world.state.node_objects[chance.choice(names)]
            fail_gpu(world, node.name, chance.choice(node.gpus).id)
        case "back":
            restore(world, *(name for name in names if world.state.node_objects[name].failure.since_s))
        case "ports":
            ports = tuple(NetworkPort(f"mlx5_{at}", is_up=chance.random() < 0.3, mb_s=50_000) for at in range(2))
            world.tell(PortsMeasured({chance.choice(names): ports}))
        case "slow":
            now_s = max(1, world.now_s)
            slow = NodeSpeed(200, now_s, now_s, now_s + 70, is_left=True, times=1, last_s=now_s)
            world.tell(*(ProgressReported(ProgressReport(name, now_s, step_us=9)) for name in sorted(world.state.pods)))
            world.tell(NodeSpeedsMeasured({chance.choice(names): slow}))
        case "gone" if len(names) > 2:
            world.tell(NodeGone(chance.choice(names), since_s=max(1, world.now_s)))


@given(leveled_states(), policies, st.randoms(use_true_random=False))
def test_no_failure_ever_breaks_a_required_level(events: list[Event], policy: Policy, chance: random.Random) -> None:
    world = world_of(events, policy)
    for _ in range(5):
        plan = world.decide()
        remember(world, plan)
        world.let_go()
        assert broken_levels(alive(world.state)) == []
        assert audit(world.state) == []
        something_fails(world, chance)
        world.now_s += 31


def alive(state: ClusterState) -> ClusterState:
    """The state without pods of nodes that are gone: they have no labels any more."""
    gone = [
        (name, pod) for name, pods in state.pods.items() for pod in pods if pods[pod].node not in state.node_objects
    ]
    if not gone:
        return state
    copy = state.fork()
    for name, pod in gone:
        copy.pods[name] = {each: found for each, found in copy.pods[name].items() if each != pod}
    return copy


@given(leveled_states(), policies, st.randoms(use_true_random=False))
def test_recovery_stops_only_lost_pods_and_what_moves_with_a_place(
    events: list[Event], policy: Policy, chance: random.Random
) -> None:
    """Who is stopped for a recovery and runs on a place that works gets another place in the same plan."""
    world = world_of(events, policy)
    for _ in range(6):
        before = {name: dict(pods) for name, pods in world.state.pods.items()}
        plan = world.decide()
        remember(world, plan)
        for eviction in plan.evictions:
            if eviction.cause is EvictionCause.RECOVERY:
                pod = before[eviction.workload][eviction.pod]
                assert pod.phase in ACTIVE_PHASES
                assert is_lost(world.state, pod) or is_nominated(plan, pod)
        assert not any(may_live(world.state, before, start.workload, start.pod) for start in plan.starts)
        world.let_go()
        something_fails(world, chance)
        world.now_s += 31


def is_lost(state: ClusterState, pod: Pod) -> bool:
    node = state.node_objects.get(pod.node)
    if node is None:
        return True
    broken = {gpu.id for gpu in node.gpus if gpu.failed_s}
    return bool(node.failure.since_s and node.failure.is_fenced) or any(share.gpu in broken for share in pod.devices)


def is_nominated(plan: Plan, pod: Pod) -> bool:
    return any((each.workload, each.pod) == (pod.workload, pod.name) for each in plan.nominations)


def may_live(state: ClusterState, before: dict[str, dict[str, Pod]], workload: str, pod: str) -> bool:
    """A copy of this pod was on some node when the plan was made."""
    found = before.get(workload, {}).get(pod)
    return found is not None and found.phase in (*ACTIVE_PHASES, *RELEASING_PHASES)


@given(leveled_states(), policies, st.randoms(use_true_random=False))
def test_the_same_failures_give_the_same_plan(events: list[Event], policy: Policy, chance: random.Random) -> None:
    world = world_of(events, policy)
    for _ in range(3):
        world.decide()
        world.let_go()
        something_fails(world, chance)
    snapshot = world.snapshot()
    plan = decide(snapshot, policy)
    assert encode_plan(plan) == encode_plan(decide(snapshot, policy))
    rebuilt = ClusterState(BUILTIN.ordering(policy))
    told = list(world.state.events())
    chance.shuffle(told)
    rebuilt.patch(told)
    other = decide(rebuilt.snapshot(world.now_s), policy)
    assert (other.evictions, other.nominations, other.recoveries) == (plan.evictions, plan.nominations, plan.recoveries)


@st.composite
def swap_worlds(draw: st.DrawFn) -> tuple[World, str]:
    """Up to 8 nodes with 2 GPUs in leaves of 2 or 3, a gang with levels, and other work; then a node of it fails."""
    policy = Policy(actions=("allocate", "consolidate"))
    world = World(nodes=0, policy=policy)
    world.tell(TopologyChanged(FABRIC))
    nodes = draw(st.integers(4, 8))
    per_leaf = draw(st.sampled_from([2, 3, 4]))
    for at in range(nodes):
        leaf = at // per_leaf
        world.node(f"n{at}", gpus=2, labels={"net/spine": f"s{leaf // 2}", "net/leaf": f"l{leaf}"})
    required, segment = draw(st.sampled_from([("leaf", 0), ("spine", 2), ("spine", 0), ("leaf", 0)]))
    world.submit(
        "gang", pods=draw(st.integers(2, 4)), gpus_each=draw(st.sampled_from([1, 2])), required_level=required,
        segment_size=segment, segment_level="leaf" if segment else "",
    ).settle()  # fmt: skip
    for at in range(draw(st.integers(1, 6))):
        world.submit(f"other-{at}", pods=draw(st.sampled_from([1, 1, 2])), gpus_each=draw(st.sampled_from([1, 2])))
        world.settle()
    used = sorted({pod.node for pod in world.state.pods.get("default/gang", {}).values()})
    return world, draw(st.sampled_from(used)) if used else ""


@settings(max_examples=60 * SIZE)
@given(swap_worlds())
def test_no_swap_touches_more_pods_than_needed(found: tuple[World, str]) -> None:
    world, node = found
    if not node:
        return
    fail(world, node).decide()
    world.let_go()
    for _ in range(3):
        state = world.state.fork()
        plan = world.decide()
        moved = [each for each in plan.evictions if each.cause is EvictionCause.RECOVERY]
        served = any(each.workload == "default/gang" for each in (*plan.nominations, *plan.starts))
        workload: Workload = state.workloads["default/gang"]
        running = list(state.pods.get("default/gang", {}).values())
        missing = workload.pods - len(running)
        if missing and running and not plan.starts:
            smallest = smallest_swap_of(state, workload)
            assert (smallest is not None) == served, f"the exhaustive search says {smallest}"
            if smallest is not None:
                assert len(moved) == smallest
        world.let_go()
