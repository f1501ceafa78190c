"""Nodes that fail much more often than others are used last."""

from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import NodeChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.learned import node_failures


def node(name: str, ready: bool = True) -> NodeChanged:
    return NodeChanged(Node(name, 64_000, 64_000, 110, (Gpu("gpu-0", "G2", 16_000),), ready=ready))


def fail(name: str, times: int) -> list[NodeChanged]:
    return [node(name, ready) for _ in range(times) for ready in (False, True)]


def chosen(policy: Policy, *events: NodeChanged) -> str:
    runner = CycleRunner(None, policy, BUILTIN)
    asked = WorkloadChanged(Workload("default/w", (Role(Request(1000, 10, 1)),)))
    runner.state.patch([QueueChanged(Queue("default")), *events, asked])
    decision = runner.cycle(1)
    assert decision is not None
    return decision.plan.starts[0].node


def test_a_node_that_fails_often_is_used_last() -> None:
    assert chosen(Policy(), node("a"), node("b")) == "a"
    assert chosen(Policy(), node("a"), node("b"), *fail("a", 3)) == "b"
    assert chosen(Policy(), node("a"), *fail("a", 3)) == "a"  # there is no other


def test_one_failure_is_normal() -> None:
    assert chosen(Policy(), node("a"), node("b"), *fail("a", 1)) == "a"


def test_what_is_normal_depends_on_the_others() -> None:
    assert chosen(Policy(), node("a"), node("b"), *fail("a", 6), *fail("b", 5)) == "a"


def test_the_weight_is_in_the_policy() -> None:
    policy = Policy(score_weights={"steady-nodes": 0})
    assert chosen(policy, node("a"), node("b"), *fail("a", 3)) == "a"


def learned(*events: NodeChanged) -> ClusterState:
    state = ClusterState()
    state.patch(events)
    return state


def test_only_a_node_that_was_ready_can_fail() -> None:
    assert learned(node("a", ready=False), node("a", ready=False)).node_failures.weights == {}
    assert learned(node("a"), *fail("a", 2)).node_failures.weights == {"a": 8}


def test_the_base_of_a_journal_has_the_failures() -> None:
    state = learned(node("a"), node("b"), *fail("b", 2))
    other = ClusterState()
    other.patch(state.events())
    assert other.node_failures.weights == {"b": 8}
    state.fork().patch(fail("a", 1))
    assert state.node_failures.weights == {"b": 8}


def test_old_failures_fade() -> None:
    state = learned(node("a"), node("b"), *fail("a", 2), *fail("b", 60))
    assert "a" not in state.node_failures.weights
    assert sum(state.node_failures.weights.values()) <= 2 * node_failures.WEIGHT * node_failures.MOST_PER_NODE
