"""Built-in topology sources: labels of nodes, and the files of Slurm and of the fabric's own tools."""

from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.topology.sources.node_labels import labelled_topology, preset_topology
from kaiwo.topology.sources.slurm import read_topology_conf

HCA_GUIDS = "kaiwo.ai/hca-guids"  # on a node: the GUIDs of its adapters, separated by dots


class PresetLabels:
    """The labels that a known tool or cloud writes on nodes."""

    name, version = "preset-labels", "1"

    def __init__(self, preset: str, topology: str) -> None:
        self._preset, self._topology = preset, topology

    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        return preset_topology(self._preset, self._topology, [node.labels for node in nodes])


class NodeLabels:
    """Any labels of nodes."""

    name, version = "node-labels", "1"

    def __init__(self, keys: tuple[str, ...], topology: str) -> None:
        self._keys, self._topology = keys, topology

    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        return labelled_topology(self._keys, self._topology, [node.labels for node in nodes])


class SlurmConf:
    """Slurm's topology.conf."""

    name, version = "slurm-conf", "1"

    def __init__(self, topology: str, path: str) -> None:
        self._topology, self._path = topology, path

    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        return read_topology_conf(text, self._topology, self._path)


class IbNetDiscover:
    """The output of ibnetdiscover; adapters without a name belong to the node whose label has their GUID."""

    name, version = "ibnetdiscover", "1"

    def __init__(self, topology: str, path: str) -> None:
        self._topology, self._path = topology, path

    def topology_source(self, nodes: tuple[Node, ...], text: str) -> Topology | None:
        # Few have such dumps: a start without one does not load what reads them.
        from kaiwo.topology.sources.fabric import fabric_topology
        from kaiwo.topology.sources.ibnetdiscover import read_ibnetdiscover

        guids = adapter_guids(nodes)
        return fabric_topology(read_ibnetdiscover(text, self._path), self._topology, self._path, guids)


def adapter_guids(nodes: tuple[Node, ...]) -> dict[str, str]:
    """By adapter: its node, as far as labels say it."""
    pairs = sorted((node.name, node.labels.get(HCA_GUIDS, "")) for node in nodes)
    return {guid.lower(): name for name, text in pairs if text for guid in text.split(".")}
