"""Taints of a Node: one list to the API server, changed only as it was known."""

import pytest

from kaiwo.clusters.kubernetes.writers.node_writer import add_taint, remove_taint
from kaiwo.clusters.kubernetes.writers.partitioning_plan_status_writer import NodeProgress, plan_phase
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.gpus.partitioning_plan import PartitioningPlan
from kaiwo.model.node import Node, Taint
from kaiwo.runtime.kubernetes.node_partitioning import changes_in, difference, modes_of

SHUT, DRAINED, OTHER = Taint("amd-dcm", "up"), Taint("amd-dcm", "up", "NoExecute"), Taint("other")
CPX, SPX = Mode("CPX", "NPS1"), Mode("SPX", "NPS1")


def test_a_taint_is_added_replaced_or_left_as_it_is() -> None:
    assert [each["op"] for each in add_taint((), SHUT)] == ["test", "add"]
    assert add_taint((OTHER,), SHUT)[1]["path"] == "/spec/taints/-"
    assert add_taint((OTHER, SHUT), DRAINED) == [
        {"op": "test", "path": "/spec/taints/1/key", "value": "amd-dcm"},
        {
            "op": "replace",
            "path": "/spec/taints/1",
            "value": {"key": "amd-dcm", "value": "up", "effect": "NoExecute"},
        },
    ]
    assert add_taint((DRAINED,), DRAINED) == []


def test_only_the_named_taint_is_removed() -> None:
    assert remove_taint((OTHER,), "amd-dcm") == []
    assert remove_taint((OTHER, DRAINED), "amd-dcm")[1] == {"op": "remove", "path": "/spec/taints/1"}


def node(mode: Mode, missing: int = 0) -> Node:
    parts = [part for at in range(8) for part in partition_gpu(Gpu(f"gpu-{at}", "MI300X", 196_608), mode)]
    return Node("n", gpus=tuple(parts[: len(parts) - missing]))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (node(CPX), ""),
        (node(CPX, missing=1), ""),
        (node(CPX, missing=2), "the node shows 62 devices, and 64 were expected"),
        (node(SPX), "gpu-0 shows SPX+NPS1 after CPX+NPS1 was set"),
        (Node("n"), "the node shows 0 devices"),
    ],
)
def test_what_the_node_shows_is_compared_with_what_was_wanted(shown: Node, words: str) -> None:
    wanted = modes_of(node(CPX))
    problem, is_final = difference(shown, wanted)
    assert problem.startswith(words) if words else not problem
    assert not is_final


def test_a_note_that_somebody_spoilt_begins_nothing() -> None:
    for text in ("", "{", '{"profile": 4}'):
        assert changes_in(text) == []


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((), "Pending"),
        (("Waiting",), "Pending"),
        (("Done", "Waiting", "Draining"), "Progressing"),
        (("Done", "Done"), "Completed"),
        (("Done", "RolledBack", "Changing"), "Degraded"),
    ],
)
def test_the_phase_of_a_plan_follows_from_its_nodes(phases: tuple[str, ...], expected: str) -> None:
    plan = PartitioningPlan("p", ())
    assert plan_phase(plan, [NodeProgress(f"n-{at}", phase, "cpx") for at, phase in enumerate(phases)])[0] == expected
    assert plan_phase(PartitioningPlan("p", (), is_paused=True), [])[0] == "Paused"
