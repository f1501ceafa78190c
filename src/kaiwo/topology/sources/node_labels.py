"""Levels from node labels: the keys that the usual tools and clouds write, or any keys in any order."""

from collections.abc import Iterable, Mapping, Sequence, Set

from kaiwo.model.errors import ConfigError
from kaiwo.model.network.check_topology import MAX_LEVELS, check_topology
from kaiwo.model.network.topology import Topology, TopologyLevel

Labels = Mapping[str, str]
HOST_LABEL = "kubernetes.io/hostname"

# From the widest to the narrowest. A level that no node has is left out.
PRESETS: dict[str, tuple[TopologyLevel, ...]] = {
    "kaiwo": (
        TopologyLevel("spine", "topology.kaiwo.ai/spine"),
        TopologyLevel("leaf", "topology.kaiwo.ai/leaf"),
    ),
    "upstream-kaiwo": (
        TopologyLevel("block", "kaiwo/topology-block"),
        TopologyLevel("rack", "kaiwo/topology-rack"),
    ),
    "topograph": (  # 1.0 and later: tier 0 is nearest to the node, and there are as many tiers as the fabric has
        *(TopologyLevel(f"tier-{tier}", f"fabric.topograph.run/tier-{tier}") for tier in range(4, -1, -1)),
        TopologyLevel("accelerator", "accelerator.topograph.run/domain"),
        TopologyLevel("accelerator-part", "accelerator.topograph.run/sub-domain"),
    ),
    "topograph-0": (  # before 1.0; the first releases wrote datacenter and block
        TopologyLevel("core", "network.topology.nvidia.com/core"),
        TopologyLevel("datacenter", "network.topology.nvidia.com/datacenter"),
        TopologyLevel("spine", "network.topology.nvidia.com/spine"),
        TopologyLevel("leaf", "network.topology.nvidia.com/leaf"),
        TopologyLevel("block", "network.topology.nvidia.com/block"),
        TopologyLevel("accelerator", "network.topology.nvidia.com/accelerator"),
    ),
    "aws": (
        TopologyLevel("zone", "topology.k8s.aws/zone-id"),
        TopologyLevel("layer-1", "topology.k8s.aws/network-node-layer-1"),
        TopologyLevel("layer-2", "topology.k8s.aws/network-node-layer-2"),
        TopologyLevel("layer-3", "topology.k8s.aws/network-node-layer-3"),
    ),
    "gke": (
        TopologyLevel("block", "cloud.google.com/gce-topology-block"),
        TopologyLevel("subblock", "cloud.google.com/gce-topology-subblock"),
        TopologyLevel("host", "cloud.google.com/gce-topology-host"),
    ),
    "oci": (
        TopologyLevel("island", "oci.oraclecloud.com/rdma.hpc_island_id"),
        TopologyLevel("network-block", "oci.oraclecloud.com/rdma.network_block_id"),
        TopologyLevel("local-block", "oci.oraclecloud.com/rdma.local_block_id"),
    ),
    "kueue-example": (
        TopologyLevel("block", "cloud.provider.com/topology-block"),
        TopologyLevel("rack", "cloud.provider.com/topology-rack"),
    ),
}


def preset_topology(preset: str, name: str, nodes: Sequence[Labels]) -> Topology | None:
    """The levels of a preset that these nodes have; None: they have none of its labels."""
    if preset not in PRESETS:
        raise ConfigError(f"there is no preset {preset!r}; write one of {', '.join(PRESETS)}", "preset")
    return _present_levels(preset, name, set().union(*nodes))


def _present_levels(preset: str, name: str, keys: Set[str]) -> Topology | None:
    levels = tuple(level for level in PRESETS[preset] if level.node_label in keys)
    return Topology(name, levels, source=f"node labels (preset {preset})") if levels else None


def find_presets(nodes: Sequence[Labels]) -> tuple[Topology, ...]:
    """The topology of every preset whose labels are on the nodes."""
    keys: set[str] = set().union(*nodes)
    found = (_present_levels(preset, preset, keys) for preset in PRESETS)
    return tuple(topology for topology in found if topology is not None)


def labelled_topology(keys: Sequence[str], name: str, nodes: Sequence[Labels]) -> Topology:
    """Levels from these keys, written in any order: a level whose domains lie inside another's is the narrower one."""
    if twice := next((key for key in keys if list(keys).count(key) > 1), ""):
        raise ConfigError(f"the label {twice} is named twice; each level needs a label of its own", "labels")
    names = _level_names(keys)
    levels = tuple(TopologyLevel(names[key], key) for key in order_keys(keys, nodes))
    return Topology(name, levels, source="node labels")


def kueue_topology(documents: Iterable[object], name: str, where: str) -> Topology:
    """The levels of the first Kueue Topology. Its last one is often the host, where each node is its own domain."""
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "Topology":
            keys = [key for key in _kueue_keys(document.get("spec"), where) if key != HOST_LABEL]
            names = _level_names(keys)
            levels = tuple(TopologyLevel(names[key], key) for key in keys)
            topology = Topology(name, levels, source=f"Kueue Topology in {where}")
            check_topology(topology, where)
            return topology
    way_out = "save one with: kubectl get topologies.kueue.x-k8s.io NAME -o yaml"
    raise ConfigError(f"{where} has no Topology of Kueue; {way_out}")


def _kueue_keys(spec: object, where: str) -> list[str]:
    levels = spec.get("levels") if isinstance(spec, dict) else None
    entries = levels if isinstance(levels, list) else []
    keys = [each.get("nodeLabel") if isinstance(each, dict) else None for each in entries]
    if not keys or not all(isinstance(key, str) and key for key in keys):
        fact = f"{where}: spec.levels is no list of entries with a nodeLabel"
        raise ConfigError(f"{fact}; write one for each level", "levels")
    if len(keys) > MAX_LEVELS:
        fact = f"{where} has {len(keys):,} levels and the maximum is {MAX_LEVELS}"
        raise ConfigError(f"{fact}; leave some out", "levels")
    return [str(key) for key in keys]


def order_keys(keys: Sequence[str], nodes: Sequence[Labels]) -> list[str]:
    """The widest first. Keys that the nodes do not tell apart stay in the written order."""
    left, ordered = list(keys), []
    while left:
        wider = [key for key in left if not any(_is_inside(key, other, nodes) for other in left if other != key)]
        ordered.append((wider or left)[0])
        left.remove(ordered[-1])
    return ordered


def _is_inside(key: str, other: str, nodes: Sequence[Labels]) -> bool:
    """Every domain of `key` lies in one domain of `other`, and not the other way round."""
    return _has_one_value(key, other, nodes) and not _has_one_value(other, key, nodes)


def _has_one_value(key: str, other: str, nodes: Sequence[Labels]) -> bool:
    seen: dict[str, str] = {}
    pairs = ((each[key], each[other]) for each in nodes if key in each and other in each)
    return all(seen.setdefault(value, above) == above for value, above in pairs)


def _level_names(keys: Sequence[str]) -> dict[str, str]:
    """The part after the last slash, where that is enough to tell the levels apart."""
    short = {key: key.rsplit("/", 1)[-1] for key in keys}
    taken = list(short.values())
    return {key: name if name and taken.count(name) == 1 else key for key, name in short.items()}
