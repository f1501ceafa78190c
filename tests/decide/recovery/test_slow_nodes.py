"""A node that stays far below the speed of the others takes no new work, and by policy, running work leaves it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.model.obstacle import Reason
from kaiwo.model.performance import FIRST_OUT_S, LONGEST_OUT_S, NodeSpeed, SlowRule, judged
from kaiwo.model.plan import encode_plan
from kaiwo.model.policy import Policy
from kaiwo.model.recovery import FailureKind, RecoveryWay
from kaiwo.runtime.loop.performance_tracker import PerformanceTracker
from kaiwo.snapshot.cluster_state import ClusterState
from tests.decide.levels.fabrics import fabric, leaves_of, nodes_of
from tests.decide.recovery.failures import is_whole, recover, touched
from tests.runtime.reported_speeds import report, report_steps, started
from tests.worlds import World, audit

LEAVE = Policy(slow_nodes="leave", slow_for_s=300)
AVOID = Policy(slow_for_s=300)


def gang_with_a_slow_pod(policy: Policy, *leaves: int, slow_ms: int = 3_000, for_s: int = 600) -> World:
    """A gang of four with one pod that needs three times as long as the others."""
    world = started(fabric(*leaves, policy=policy), "train", pods=4, gpus_each=8, required_level="leaf")
    steps = {"main-0": 1_000, "main-1": 1_010, "main-2": slow_ms, "main-3": 990}
    report_steps(world, PerformanceTracker(policy), "train", steps, for_s)
    return world


def test_a_pod_leaves_a_node_that_stays_slow_and_stays_in_its_leaf() -> None:
    world = gang_with_a_slow_pod(LEAVE, 6, 6)
    before = nodes_of(world, "train")
    plan = world.decide()
    [recovery] = plan.recoveries
    assert (recovery.kind, recovery.way) == (FailureKind.SLOW, RecoveryWay.REPLACE)
    assert recovery.causes == (f"slow node {before['main-2']}",)
    assert [each.pod for each in plan.evictions] == ["main-2"]
    assert [each.pod for each in plan.nominations] == ["main-2"], "its new place is kept before it stops"
    world.let_go()
    recover(world)
    after = nodes_of(world, "train")
    assert after["main-2"] != before["main-2"]
    assert {pod: after[pod] for pod in ("main-0", "main-1", "main-3")} == {
        pod: before[pod] for pod in ("main-0", "main-1", "main-3")
    }
    assert len(leaves_of(world, "train")) == 1
    assert is_whole(world, "train")
    assert not world.state.failures.recoveries
    assert audit(world.state) == []


def test_by_default_the_node_takes_no_new_work_and_nothing_moves() -> None:
    world = gang_with_a_slow_pod(AVOID, 4)
    assert world.decide().is_empty
    slow = nodes_of(world, "train")["main-2"]
    world.finish("train")
    world.submit("next", pods=4, gpus_each=8).decide()
    assert not world.is_running("next"), "one of the four nodes is slow"
    assert Reason.NODE_NOT_READY in world.why("next")
    world.submit("small", pods=3, gpus_each=8).decide()
    assert slow not in nodes_of(world, "small").values()


@pytest.mark.parametrize(
    "policy", [Policy(slow_nodes="ignore", slow_for_s=300), Policy(slow_nodes="leave", slow_for_s=900)]
)
def test_nothing_happens_when_the_policy_ignores_it_or_it_has_not_lasted(policy: Policy) -> None:
    world = gang_with_a_slow_pod(policy, 6)
    assert not world.state.speeds.out
    assert world.decide().is_empty


def test_a_little_slower_is_not_slow() -> None:
    world = gang_with_a_slow_pod(LEAVE, 6, slow_ms=1_700)
    assert not world.state.speeds.out
    assert world.decide().is_empty


def test_a_pod_that_finds_no_other_place_goes_on() -> None:
    world = gang_with_a_slow_pod(LEAVE, 4)
    plan = world.decide()
    assert not plan.evictions
    [recovery] = plan.recoveries
    assert recovery.way is RecoveryWay.WAIT
    world.decide()
    assert is_whole(world, "train")


def test_work_that_reports_nothing_stays() -> None:
    """It shares the slow node, and nothing tells that it would be faster elsewhere."""
    world = fabric(6, policy=LEAVE)
    started(world, "train", pods=4, gpus_each=7, required_level="leaf")
    slow = nodes_of(world, "train")["main-2"]
    while world.nodes_of("quiet") != [slow]:
        world.submit("quiet", gpus_each=1).settle()
        if world.nodes_of("quiet") != [slow]:
            world.finish("quiet").submit(f"filler-{len(world.state.pods)}", gpus_each=1).settle()
    steps = {"main-0": 1_000, "main-1": 1_000, "main-2": 3_000, "main-3": 1_000}
    report_steps(world, PerformanceTracker(LEAVE), "train", steps, 600)
    assert touched(recover(world)) == {"default/train/main-2"}
    assert world.nodes_of("quiet") == [slow]


def test_a_gang_that_is_slow_as_a_whole_blames_no_node() -> None:
    """One of its members is slow, or its network: its report does not say which."""
    world = fabric(6, policy=LEAVE)
    tracker = PerformanceTracker(LEAVE)
    started(world, "slow", pods=2, gpus_each=8)
    started(world, "fast", pods=3, gpus_each=8)
    for _ in range(40):
        report(world, tracker, "slow", step_us=5_000_000, expected_us=1_000_000)
        report(world, tracker, "fast", step_us=1_000_000, expected_us=1_000_000)
        world.now_s += 30
    assert not world.state.speeds.out
    assert world.decide().is_empty


def test_a_whole_slow_leaf_is_named_and_its_nodes_are_not_blamed() -> None:
    world = fabric(2, 6, 6, policy=LEAVE)
    tracker = PerformanceTracker(LEAVE)
    started(world, "here", pods=2, gpus_each=8, required_level="leaf")
    started(world, "there", pods=4, gpus_each=8, required_level="leaf")
    assert leaves_of(world, "here") == {"l0"}
    for _ in range(30):
        for pod in ("main-0", "main-1"):
            report(world, tracker, "here", pod, step_us=5_000_000, expected_us=1_000_000)
        for pod in ("main-0", "main-1", "main-2", "main-3"):
            report(world, tracker, "there", pod, step_us=1_000_000, expected_us=1_000_000)
        world.now_s += 30
    plan = world.decide()
    [recovery] = plan.recoveries
    assert recovery.causes == ("slow leaf leaf-0",)
    assert plan.bad_nodes == ()
    world.let_go()
    recover(world)
    assert len(leaves_of(world, "here")) == 1
    assert leaves_of(world, "here") != {"l0"}
    assert is_whole(world, "here")


def test_a_slow_node_gets_another_chance_and_is_out_longer_each_time() -> None:
    world = fabric(8, policy=LEAVE)
    tracker = PerformanceTracker(LEAVE)
    out_s = []
    for number in range(7):
        name = f"train-{number}"
        started(world, name, pods=8, gpus_each=8)
        steps = {f"main-{at}": 1_000 for at in range(8)}
        slow = next(pod for pod, node in nodes_of(world, name).items() if node == "l0-n3")
        for _ in range(200):
            report_steps(world, tracker, name, {**steps, slow: 4_000}, 0)
            if world.state.speeds.out:
                break
        [until_s] = world.state.speeds.out.values()
        out_s.append(until_s - world.state.speeds.nodes["l0-n3"].last_s)
        world.finish(name)
        world.now_s = until_s
        world.snapshot()
        assert not world.state.speeds.out
        assert world.state.speeds.nodes["l0-n3"].permille == 0, "nothing is known about it any more"
    assert out_s == [FIRST_OUT_S << at for at in range(6)] + [LONGEST_OUT_S]


def test_at_most_a_quarter_of_the_nodes_is_out_however_many_report_that_they_are_slow() -> None:
    """A program that reports nonsense must not close the cluster."""
    world = fabric(16, policy=LEAVE)
    tracker = PerformanceTracker(LEAVE)
    started(world, "honest", pods=8, gpus_each=8)
    started(world, "liar", pods=7, gpus_each=8)
    for _ in range(60):
        for at in range(8):
            report(world, tracker, "honest", f"main-{at}", step_us=1_000_000, expected_us=1_000_000)
        for at in range(7):
            report(world, tracker, "liar", f"main-{at}", step_us=90_000_000, expected_us=1_000_000)
        world.now_s += 10
    assert 0 < len(world.state.speeds.out) <= 4


def test_a_node_that_changes_meanwhile_stays_out() -> None:
    world = gang_with_a_slow_pod(AVOID, 6)
    [(slow, until_s)] = world.state.speeds.out.items()
    world.tell(*[event for event in world.state.events() if getattr(getattr(event, "node", None), "name", "") == slow])
    assert world.state.node_objects[slow].failure.out_until_s == until_s
    world.now_s = until_s
    world.snapshot()
    assert world.state.node_objects[slow].failure.out_until_s == 0
    copy = ClusterState()
    copy.patch(gang_with_a_slow_pod(AVOID, 6).state.events())
    assert copy.speeds.out == {slow: until_s}


def test_with_few_others_nothing_is_slow() -> None:
    rule = SlowRule(50, 0, True)
    assert not judged(NodeSpeed(10, 9), [NodeSpeed(1000, 9)], rule, True).out_until_s
    assert judged(NodeSpeed(10, 9), [NodeSpeed(1000, 9)] * 2, rule, True).out_until_s
    assert not judged(NodeSpeed(10, 9), [NodeSpeed(1000, 9)] * 2, rule, False).out_until_s


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["leaf", "spine"]), st.integers(0, 2)), max_size=4),
    st.data(),
)
def test_a_required_level_holds_and_nothing_runs_twice_whatever_is_slow(
    leaves: list[int], gangs: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    world = fabric(*leaves, policy=Policy(slow_nodes="leave", slow_for_s=0))
    tracker = PerformanceTracker(world.policy)
    for number, (pods, level, _) in enumerate(gangs):
        world.submit(f"w{number}", pods=pods, gpus_each=8, required_level=level)
    world.settle()
    for _ in range(data.draw(st.integers(1, 4))):
        for number, (pods, _, _) in enumerate(gangs):
            for at in range(pods):
                step_ms = data.draw(st.sampled_from([1_000, 1_000, 1_000, 9_000]))
                report(world, tracker, f"w{number}", f"main-{at}", step_us=step_ms * 1000, expected_us=1_000_000)
        world.now_s += 60
        plan = encode_plan(world.decide())
        assert plan
        world.let_go()
        world.decide()
        assert audit(world.state) == []
        for number, (_, level, _) in enumerate(gangs):
            nodes = [world.state.node_objects[node] for node in nodes_of(world, f"w{number}").values()]
            assert len({node.labels[f"net/{level}"] for node in nodes}) <= 1
