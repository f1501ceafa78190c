"""What is free and of no use, and why."""

from collections.abc import Mapping

import pytest

from kaiwo.api.presenters.fragments_view import fragments_view
from kaiwo.gpus.fragments import ClusterFragments, StrandedBy, measure_fragments
from kaiwo.model.events import NodeChanged, PodChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.network.topology import Domain, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestKind
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState

WHOLE, HALF = RequestKind(4000, 1, 1000), RequestKind(1000, 1, 500)


def node(name: str, gpus: int = 2, cpus: int = 64, model: str = "G2", cordoned: bool = False) -> Node:
    devices = tuple(Gpu(f"gpu-{at}", model, 16_000) for at in range(gpus))
    return Node(name, 1000 * cpus, 10**6, gpus=devices, cordoned=cordoned)


def held(on: str, gpu: int, milli: int, cpus: int = 0) -> PodChanged:
    share = Share(f"gpu-{gpu}", milli, 16 * milli)
    return PodChanged(Pod(f"default/{on}-{gpu}", "main-0", on, devices=(share,), cpu_milli=1000 * cpus))


def state(*events: NodeChanged | PodChanged | TopologyChanged | WorkloadChanged) -> ClusterState:
    found = ClusterState()
    found.patch(events)
    found.refresh_tables()
    return found


@pytest.mark.parametrize("nodes", [(), (NodeChanged(Node("cpu-only", 64_000, 10**6)),)])
def test_without_gpus_nothing_is_free_and_nothing_is_stranded(nodes: tuple[NodeChanged, ...]) -> None:
    found = measured({WHOLE: 1}, *nodes)
    assert (found.free_milli, found.stranded_milli, found.ratio_permille, found.nodes) == (0, 0, 0, ())


def measured(weights: Mapping[RequestKind, int], *events: NodeChanged | PodChanged) -> ClusterFragments:
    return measure_fragments(state(*events).nodes, weights)


def test_gpus_without_cpu_are_stranded() -> None:
    found = measured({WHOLE: 4}, NodeChanged(node("a", 4, cpus=8)))
    assert [(each.node, each.free_milli, each.stranded_milli, each.reason) for each in found.nodes] == [
        ("a", 4000, 2000, StrandedBy.NO_CPU)
    ]
    assert (found.stranded_milli, found.ratio_permille, found.kinds[0].pods) == (2000, 500, 2)


def test_a_remainder_that_no_request_fits_into_is_stranded() -> None:
    found = measured({HALF: 4}, NodeChanged(node("a")), held("a", 0, 700))
    assert [(each.stranded_milli, each.reason, each.whole_gpus) for each in found.nodes] == [
        (300, StrandedBy.TOO_SMALL, 1)
    ]
    assert found.by_reason == {StrandedBy.TOO_SMALL: 300}


def test_a_model_that_nobody_asks_for_and_a_closed_node_are_stranded() -> None:
    only = RequestKind(0, 1, 1000, ("G2",))
    found = measured({only: 4}, NodeChanged(node("a", model="T4")), NodeChanged(node("b", cordoned=True)))
    assert {each.node: each.reason for each in found.nodes} == {"a": StrandedBy.MODEL, "b": StrandedBy.NODE_CLOSED}
    assert found.stranded_milli == found.free_milli == 4000


def test_what_only_some_requests_can_use_counts_in_the_ratio() -> None:
    found = measured({WHOLE: 12, HALF: 4}, NodeChanged(node("a", 1)), held("a", 0, 500))
    assert (found.stranded_milli, found.ratio_permille) == (0, 750)
    assert [(room.kind, room.weight_permille, room.pods) for room in found.kinds] == [(WHOLE, 750, 0), (HALF, 250, 1)]


def test_several_gpus_must_be_whole_and_on_one_node() -> None:
    four = RequestKind(0, 4, 1000)
    found = measured({four: 4}, NodeChanged(node("a", 4)), NodeChanged(node("b", 4)), held("b", 0, 10))
    assert found.kinds[0].pods == 1
    assert found.stranded_milli == 3990


def test_before_anything_was_seen_a_whole_gpu_is_assumed() -> None:
    assert measured({RequestKind(1000): 8}, NodeChanged(node("a"))).stranded_milli == 0


@pytest.mark.parametrize(("domain", "stranded"), [("r1", 2000), ("r2", 0)])
def test_domains_have_the_sum_of_their_nodes(domain: str, stranded: int) -> None:
    racks = (Domain("r1", "rack", nodes=("a", "b")), Domain("r2", "rack", nodes=("c",)))
    world = state(
        NodeChanged(node("a", 2, cpus=2)),
        NodeChanged(node("b", 2)),
        NodeChanged(node("c", 2)),
        TopologyChanged(Topology("net", (TopologyLevel("rack"),), racks)),
    )
    found = measure_fragments(world.nodes, {WHOLE: 4})
    (rack,) = [each for each in found.domains if each.domain == domain]
    assert rack.stranded_milli == stranded


def test_the_answer_puts_the_most_stranded_first() -> None:
    asked = Workload("default/w", (Role(Request(4000, 10, 1)),))
    world = state(NodeChanged(node("a")), NodeChanged(node("b", cpus=1)), WorkloadChanged(asked))
    view = fragments_view(world, 7)
    assert [(each.node, each.reason) for each in view.nodes] == [("b", "no-cpu"), ("a", "")]
    assert (view.as_of_s, view.stranded_by, view.kinds[0].pods) == (7, {"no-cpu": 2000}, 2)
