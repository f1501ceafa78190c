"""Whoever says how fast his work runs may lie: nobody closes the nodes of others with a small part of them."""

import pytest

from kaiwo.model.policy import Policy
from kaiwo.runtime.loop.performance_tracker import MAX_WITNESSES, PerformanceTracker
from tests.decide.levels.fabrics import fabric, nodes_of
from tests.runtime.reported_speeds import report, started
from tests.worlds import World

POLICY = Policy(slow_for_s=300)
FAST, SLOW = 1_000_000, 9_000_000  # microseconds a step


def shared_nodes() -> World:
    """Eight nodes. On four of them ada has seven GPUs and eve one."""
    world = fabric(8, policy=POLICY)
    started(world, "train", pods=4, gpus_each=7, user="ada")
    for pod in range(4):
        started(world, f"eve-{pod}", gpus_each=1, user="eve")
    assert {world.nodes_of(f"eve-{pod}")[0] for pod in range(4)} == set(nodes_of(world, "train").values())
    return world


def say(world: World, tracker: PerformanceTracker, *said: tuple[str, str, int], for_s: int = 600) -> None:
    """Each workload, by one of its pods, again and again."""
    for _ in range(for_s // 30):
        for workload, pod, step_us in said:
            report(world, tracker, workload, pod, step_us=step_us, expected_us=FAST)
        world.now_s += 30


def test_who_has_one_gpu_of_a_node_does_not_close_it_to_others() -> None:
    world, tracker = shared_nodes(), PerformanceTracker(POLICY)
    say(world, tracker, ("eve-0", "main-0", SLOW), *((f"eve-{pod}", "main-0", FAST) for pod in (1, 2, 3)))
    assert not world.state.speeds.out
    world.submit("other", pods=4, gpus_each=8, user="bob").decide()
    assert world.is_running("other")


def test_a_second_user_who_says_the_same_closes_it() -> None:
    world, tracker = shared_nodes(), PerformanceTracker(POLICY)
    by_node = {node: pod for pod, node in nodes_of(world, "train").items()}
    slow = by_node[world.nodes_of("eve-1")[0]]
    ada = [("train", pod, SLOW if pod == slow else FAST) for pod in by_node.values()]
    eve = [(f"eve-{each}", "main-0", SLOW if each == 1 else FAST) for each in range(4)]
    say(world, tracker, *ada)
    assert not world.state.speeds.out, "one user alone, who does not hold the whole node"
    say(world, tracker, *ada, *eve)
    assert set(world.state.speeds.out) == set(world.nodes_of("eve-1"))


@pytest.mark.parametrize("by_namespace", [True, False])
def test_two_users_of_one_namespace_are_one_witness_where_one_may_write_for_the_other(by_namespace: bool) -> None:
    """On Kubernetes: eve annotates the pods of ada, too, and together they have seven GPUs of the node."""
    world, tracker = fabric(8, policy=POLICY), PerformanceTracker(POLICY, by_namespace=by_namespace)
    started(world, "train", pods=4, gpus_each=6, user="ada")
    for pod in range(4):
        started(world, f"eve-{pod}", gpus_each=1, user="eve")
        started(world, f"lab/bob-{pod}", gpus_each=1, user="bob")
    [node] = world.nodes_of("eve-1")
    assert node in {world.nodes_of(f"lab/bob-{pod}")[0] for pod in range(4)}
    ada = [("train", pod, SLOW if at == node else FAST) for pod, at in nodes_of(world, "train").items()]
    eve = [(f"eve-{each}", "main-0", SLOW if each == 1 else FAST) for each in range(4)]
    say(world, tracker, *ada, *eve)
    assert set(world.state.speeds.out) == (set() if by_namespace else {node})


def test_who_said_it_long_ago_agrees_with_nobody() -> None:
    world, tracker = shared_nodes(), PerformanceTracker(POLICY)
    eve = [(f"eve-{each}", "main-0", SLOW if each == 0 else FAST) for each in range(4)]
    say(world, tracker, *eve)
    world.now_s += 3_600
    by_node = {node: pod for pod, node in nodes_of(world, "train").items()}
    slow = by_node[world.nodes_of("eve-0")[0]]
    say(world, tracker, *(("train", pod, SLOW if pod == slow else FAST) for pod in by_node.values()))
    assert not world.state.speeds.out


def test_who_reports_impossible_speeds_makes_nobody_else_slow() -> None:
    """Before, two pods that were four times as fast as expected made an honest node slow beside them."""
    world = fabric(8, policy=POLICY)
    tracker = PerformanceTracker(POLICY)
    started(world, "filler", pods=4, gpus_each=7, user="cleo")
    for pod in range(4):
        started(world, f"eve-{pod}", gpus_each=1, user="eve")
    started(world, "honest", gpus_each=8, user="bob")
    say(world, tracker, *((f"eve-{pod}", "main-0", FAST // 4) for pod in range(4)), ("honest", "main-0", FAST))
    assert not world.state.speeds.out


def test_a_witness_is_a_namespace_where_users_are_not_known_and_few_are_remembered() -> None:
    world = fabric(4, policy=POLICY)
    tracker = PerformanceTracker(POLICY)
    for number in range(MAX_WITNESSES + 5):
        world.submit(f"ns-{number}/one", gpus_each=1, fraction_milli=100).settle()
        report(world, tracker, f"ns-{number}/one", "main-0", step_us=FAST, expected_us=FAST)
    [said] = tracker._witnesses._said.values()
    assert len(said) == MAX_WITNESSES
    assert f"ns-{MAX_WITNESSES + 4}" in said
