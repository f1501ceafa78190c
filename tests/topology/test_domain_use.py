"""How much of each domain is in use."""

from kaiwo.model.events import NodeChanged, PodChanged, TopologyChanged
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.topology.domain_use import MAX_DOMAINS, DomainUse, use_of_domains

LEAVES = Topology("net", (TopologyLevel("zone", "zone"), TopologyLevel("leaf", "leaf")))


def state_of(leaves: dict[str, str], gpus: int = 4) -> ClusterState:
    """Nodes with labels; a node whose leaf is empty has none."""
    state = ClusterState()
    devices = tuple(Gpu(f"gpu-{at}", "MI300X", 1000) for at in range(gpus))
    state.patch(
        NodeChanged(Node(name, 1000, 1000, gpus=devices, labels={"zone": "z", "leaf": leaf} if leaf else {}))
        for name, leaf in leaves.items()
    )
    state.patch([TopologyChanged(LEAVES)])
    return state


def run_on(state: ClusterState, node: str, *shares: Share) -> None:
    state.patch([PodChanged(Pod(f"w-{node}", "main-0", node, Phase.RUNNING, shares))])


def test_a_domain_counts_its_nodes_and_what_is_allocated_there() -> None:
    state = state_of({"a": "l1", "b": "l1", "c": "l2", "lost": ""})
    run_on(state, "a", Share("gpu-0", 1000, 1000), Share("gpu-1", 500, 500))
    run_on(state, "lost", Share("gpu-0", 1000, 1000))
    state.refresh_tables()
    uses = use_of_domains(state.nodes)
    assert uses == [
        DomainUse("net", "zone", "z", 3, 1, 12_000, 1500),
        DomainUse("net", "leaf", "l1", 2, 1, 8000, 1500),
        DomainUse("net", "leaf", "l2", 1, 0, 4000, 0),
    ]
    assert (uses[1].node_ratio, uses[1].gpu_ratio) == (0.5, 0.1875)
    assert (uses[2].node_ratio, uses[2].gpu_ratio) == (0.0, 0.0)


def test_a_domain_without_gpus_is_not_in_use() -> None:
    state = state_of({"a": "l1"}, gpus=0)
    state.refresh_tables()
    assert [(use.nodes, use.node_ratio, use.gpu_ratio) for use in use_of_domains(state.nodes)] == [(1, 0.0, 0.0)] * 2


def test_a_level_with_too_many_domains_is_left_out() -> None:
    state = state_of({f"n{at}": f"l{at}" for at in range(MAX_DOMAINS + 1)}, gpus=0)
    state.refresh_tables()
    assert {use.level for use in use_of_domains(state.nodes)} == {"zone"}
    state = state_of({f"n{at}": f"l{at}" for at in range(MAX_DOMAINS)}, gpus=0)
    state.refresh_tables()
    assert {use.level for use in use_of_domains(state.nodes)} == {"zone", "leaf"}


def test_without_a_topology_there_is_nothing_to_tell() -> None:
    assert use_of_domains(ClusterState().nodes) == []
