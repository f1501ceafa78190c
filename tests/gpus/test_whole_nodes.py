"""Where a change takes a whole node, every GPU of it waits for the last one in use."""

from kaiwo.gpus.partitioning.planner_types import GpuState, ModeChangeStep, NodeState
from kaiwo.gpus.partitioning.rollout import whole_node_steps
from kaiwo.model.gpus.partition_modes import Mode, ModeChange

SPX, CPX = Mode("SPX", "NPS1"), Mode("CPX", "NPS1")


def node(name: str, used: int = 0) -> NodeState:
    gpus = tuple(GpuState(f"gpu-{at}", SPX, used=int(at < used), free_in_s=90 * int(at < used)) for at in range(3))
    return NodeState(name, "MI300X", gpus)


def step(name: str) -> ModeChangeStep:
    return ModeChangeStep(name, ModeChange("gpu-2", SPX, CPX), is_due=True, takes_s=60)


def test_the_other_gpus_of_the_node_are_closed_with_it() -> None:
    found = whole_node_steps([node("a", used=1), node("b")], [step("a"), step("b")], {"a", "b"})
    assert [(each.node, each.change.gpu, each.change.after) for each in found[:3]] == [
        ("a", "gpu-0", SPX),
        ("a", "gpu-1", SPX),
        ("a", "gpu-2", CPX),
    ]
    assert {(each.node, each.is_due, each.waits_s, each.takes_s) for each in found} == {
        ("a", False, 90, 60),
        ("b", True, 0, 60),
    }


def test_nodes_whose_gpus_change_one_by_one_and_nodes_without_a_step_stay_as_they_are() -> None:
    assert whole_node_steps([node("a", used=1), node("b")], [step("a")], {"b"}) == [step("a")]
