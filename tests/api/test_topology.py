"""GET /api/v1/topology: the tree, the links, who uses them, and where the sources disagree."""

from pathlib import Path

from kaiwo.api.presenters.topology_view import topology_view
from kaiwo.api.views.topology import TopologyDomainView, TopologyView
from kaiwo.api.views.workloads import WhyView
from kaiwo.model.events import NodeChanged, PodChanged, TopologyChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.api.world import decode
from tests.api.world import world as running_world
from tests.waiting import run, until_answer

LEAF = "example.com/leaf"
FABRIC = Topology(
    "fabric",
    (TopologyLevel("spine"), TopologyLevel("leaf")),
    (Domain("s", "spine"), Domain("l1", "leaf", ("s",)), Domain("l2", "leaf", ("s",)), Domain("l3", "leaf", ("s",))),
    tuple(Attachment(f"n{at}", f"l{1 + at // 2}", mb_s=50_000) for at in range(4)),
    (NetworkLink("l1", "s", 50_000, 2, 1, 10_000), NetworkLink("l2", "s", 50_000, 2), NetworkLink("l3", "s", 50_000)),
    "a file",
)


def world() -> ClusterState:
    state = ClusterState()
    gpus = tuple(Gpu(f"gpu-{at}", "MI300X", 1000) for at in range(8))
    labels = {"n0": "l1", "n1": "l1", "n2": "l2", "n3": "l1"}
    state.patch(NodeChanged(Node(name, 1000, 1000, gpus=gpus, labels={LEAF: leaf})) for name, leaf in labels.items())
    state.patch([TopologyChanged(FABRIC), TopologyChanged(Topology("labels", (TopologyLevel("leaf", LEAF),)))])
    for name, nodes in {"wide": ("n0", "n2"), "narrow": ("n0", "n1"), "small": ("n3",)}.items():
        state.patch([WorkloadChanged(Workload(name, (Role(Request(gpus=1), count=len(nodes)),)))])
        state.patch(
            PodChanged(Pod(name, f"{name}-{node}", node, Phase.RUNNING, (Share(f"gpu-{len(name)}", 1000, 1000),)))
            for node in nodes
        )
    return state


def domain(view: TopologyView, name: str, topology: str = "fabric") -> TopologyDomainView:
    (network,) = [each for each in view.topologies if each.name == topology]
    (found,) = [each for each in network.domains if each.name == name]
    return found


def test_a_link_is_used_by_workloads_on_both_sides() -> None:
    view = topology_view(world(), {}, 7)
    network = view.topologies[0]
    assert [(link.lower, link.state, link.used_mb_s, link.used_by) for link in network.links] == [
        ("l1", "degraded", 10_000, ["wide"]),
        ("l2", "up", 0, ["wide"]),
        ("l3", "up", 0, []),
    ]
    assert view.as_of_s == 7
    assert [(level.name, level.domains, level.nodes) for level in network.levels] == [("spine", 1, 4), ("leaf", 3, 4)]


def test_a_domain_has_its_load() -> None:
    view = topology_view(world(), {}, 7)
    first = domain(view, "l1")
    assert (first.nodes, first.parents, first.gpu_milli, first.free_gpu_milli) == (["n0", "n1"], ["s"], 16_000, 13_000)
    assert (first.links, first.dead_links, first.link_mb_s, first.port_mb_s) == (1, 1, 50_000, 100_000)
    assert (first.oversubscription_milli, first.active_nodes, first.share_mb_s) == (2000, 1, 48_500)
    assert domain(view, "l2").share_mb_s == 97_000
    assert domain(view, "s").nodes == ["n0", "n1", "n2", "n3"]
    assert domain(view, "s").used_by == []
    assert domain(view, "l3").nodes == []
    assert domain(view, "l1", "labels").nodes == ["n0", "n1", "n3"]


def test_contradictions_and_faults_are_told() -> None:
    view = topology_view(world(), {"fabric": "line 3 is odd", "other": "no such file"}, 7)
    assert [(each.subject, each.kind) for each in view.contradictions] == [("n3", "contradiction")]
    assert view.topologies[0].fault == "line 3 is odd"
    assert view.faults == ["topology other: no such file"]


def test_names_of_nodes_that_the_cluster_does_not_have_are_told() -> None:
    state = world()
    others = tuple(Domain(f"l{at}", "leaf", nodes=(f"n0{at}", f"n1{at}")) for at in range(4))
    state.patch([TopologyChanged(Topology("other", (TopologyLevel("leaf"),), others, source="slurm=a.conf"))])
    state.patch(
        [TopologyChanged(Topology("part", (TopologyLevel("leaf"),), (Domain("l", "leaf", nodes=("n1", "x")),)))]
    )
    shown = topology_view(state, {}, 7).topologies
    found = {each.name: [(it.kind, it.subject, it.detail) for it in each.findings] for each in shown}
    written = (
        "names 8 nodes that the cluster does not have: n00, n01, n02 and 5 others; none of its names is known, so "
        "check how they are written: the cluster has n0, n1, n2 and 1 other"
    )
    assert found == {
        "fabric": [],
        "labels": [],
        "other": [("unknown-nodes", "slurm=a.conf", written)],
        "part": [("unknown-nodes", "part", "names 1 node that the cluster does not have: x")],
    }


def test_the_metrics_tell_how_domains_are_used_and_chosen(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_world(tmp_path) as kaiwo:
            leaves = Domain("l1", "leaf", nodes=("node-0", "node-1")), Domain("l2", "leaf")
            await kaiwo.loop.add_events([TopologyChanged(Topology("net", (TopologyLevel("leaf"),), leaves))])
            await kaiwo.submit("plain", gpus=2)
            await kaiwo.until_state("plain", "running")
            await kaiwo.submit("near", gpus=6, pods=2, requiredLevel="leaf")
            await kaiwo.until_state("near", "running")
            text = await until_answer(kaiwo.metrics, lambda text: 'level="leaf",strategy' in text, "the choice")
            domain = '{domain="l1",level="leaf",topology="net"}'
            assert f"topology_domain_utilization_ratio{domain} 1.0" in text
            assert f"topology_gpu_allocation_ratio{domain} 0.875" in text
            choice = '{level="leaf",strategy="consolidated",topology="net"}'
            assert f"topology_placement_decisions_total{choice} 1.0" in text
            assert "topology_scheduler_latency_seconds_count 1.0" in text  # that of "plain" chose no domain

    run(test())


def test_why_tells_which_domain_running_work_has_and_every_term_of_its_score(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_world(tmp_path) as kaiwo:
            leaf = Domain("l1", "leaf", nodes=("node-0", "node-1"))
            await kaiwo.loop.add_events([TopologyChanged(Topology("net", (TopologyLevel("leaf"),), (leaf,)))])
            await kaiwo.submit("near", gpus=6, pods=2, requiredLevel="leaf")
            await kaiwo.until_state("near", "running")
            why = decode(await kaiwo.get("/workloads/default/near/why"), WhyView)
            assert why.answer == (
                "It is not waiting: it is running. Its pods were placed in l1, the only domain of level leaf with room "
                "(score 750 of 1000: availability 1000, alignment 1000, utilisation 0, performance 500; consolidated)."
            )

    run(test())
