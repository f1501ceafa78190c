"""Read one source of a topology: its file, or the labels of the nodes.

In:    a TopologySource, all nodes.   Out: a Topology, or None: no node has its labels.
Raises a ConfigError that names the file, the line and the way out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, ManifestObject
from kaiwo.manifests.kinds.topology import KIND, read_topology
from kaiwo.manifests.text.read_documents import read_single, read_values
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.check_topology import check_topology
from kaiwo.model.network.topology import Topology
from kaiwo.model.network.topology_source import FILE_KINDS, SourceKind, TopologySource
from kaiwo.model.node import Node
from kaiwo.plugins.builtin.topology_sources import IbNetDiscover, NodeLabels, PresetLabels, SlurmConf
from kaiwo.plugins.edge_contract import ReadsTopology
from kaiwo.topology.sources.node_labels import kueue_topology
from kaiwo.topology.sources.slurm import read_topology_yaml

MAX_BYTES = 64 << 20
_YAML = (".yaml", ".yml")


def own_source(source: TopologySource) -> ReadsTopology | None:
    """The built-in plugin that reads this source; None: what people write in YAML is read here."""
    match source.kind:
        case SourceKind.PRESET:
            return PresetLabels(source.keys[0], source.name)
        case SourceKind.LABELS:
            return NodeLabels(source.keys, source.name)
        case SourceKind.IBNETDISCOVER:
            return IbNetDiscover(source.name, source.path)
        case SourceKind.SLURM if not source.path.endswith(_YAML):
            return SlurmConf(source.name, source.path)
    return None


def read_network(source: TopologySource, nodes: tuple[Node, ...]) -> Topology | None:
    """What the source itself says. Reads the file again, if the source has one."""
    text = read_file(source.path) if source.kind in FILE_KINDS else ""
    if (plugin := own_source(source)) is not None:
        return plugin.topology_source(nodes, text)
    return _read_yaml(source, text) if text or source.kind in FILE_KINDS else source.written


def with_access(topology: Topology, source: TopologySource) -> Topology:
    """With the rules that the cluster file has for this source."""
    if not source.access:
        return topology
    topology = replace(topology, access=(*topology.access, *source.access))
    check_topology(topology, f"topology {source.name}")
    return topology


def _read_yaml(source: TopologySource, text: str) -> Topology:
    if source.kind == SourceKind.SLURM:
        documents = _documents(source.path, text)
        return read_topology_yaml(documents[0] if len(documents) == 1 else None, source.name, source.path)
    if source.kind == SourceKind.KUEUE:
        return kueue_topology(_documents(source.path, text), source.name, source.path)
    document = read_single(text, source.path, "write one KaiwoTopology", f"kind: {KIND}")
    if document.get("kind") != KIND:
        raise ConfigError(f"{source.path} is no {KIND}; write `kind: {KIND}` with a spec", "kind")
    topology = read_topology(ManifestObject(document, source.path, NO_DEFAULTS, []))
    return replace(topology, name=source.name, source=f"{KIND} in {source.path}")


def _documents(path: str, text: str) -> list[Any]:
    try:
        return read_values(text, MAX_BYTES)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", error.field) from None


def with_inner_links(nodes: Sequence[Node], sources: Sequence[TopologySource]) -> list[Node]:
    """The nodes, with the links between their GPUs that NCCL files describe."""
    found = list(nodes)
    for source in sources:
        if source.kind == SourceKind.NCCL:
            from kaiwo.topology.sources.nccl_xml import read_nccl_xml  # few have such files, and it needs an XML parser

            inside = read_nccl_xml(read_file(source.path), source.path)
            for at, node in enumerate(found):
                if source.nodes and node.name not in source.nodes:
                    continue
                if len(node.gpus) != len(inside.gpus):
                    if not source.nodes:
                        continue  # one of another kind
                    raise ConfigError(
                        f"{source.path} describes {len(inside.gpus)} GPUs and node {node.name} has {len(node.gpus)}; "
                        "leave the node out of `nodes`",
                        "nodes",
                    )
                found[at] = replace(node, wiring=inside.links)
    return found


def read_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path} cannot be read ({reason}); check the path and its permissions", path) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} has more than {MAX_BYTES >> 20} MiB; check whether it is the right file", path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path} line {line} is not UTF-8 text; check whether it is the right file", path) from None
