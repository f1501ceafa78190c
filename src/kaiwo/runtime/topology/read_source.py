"""Read one source of a topology: its file, or the labels of the nodes.

In:    a TopologySource, the labels of all nodes.   Out: a Topology, or None: no node has its labels.
Raises a ConfigError that names the file, the line and the way out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from kaiwo.manifests.kinds.object_metadata import NO_DEFAULTS, ManifestObject
from kaiwo.manifests.kinds.topology import KIND, read_topology
from kaiwo.manifests.text.read_documents import read_single, read_values
from kaiwo.model.errors import ConfigError
from kaiwo.model.network.topology import Topology
from kaiwo.model.network.topology_source import FILE_KINDS, SourceKind, TopologySource
from kaiwo.model.node import Node
from kaiwo.topology.sources.fabric import fabric_topology
from kaiwo.topology.sources.ibnetdiscover import read_ibnetdiscover
from kaiwo.topology.sources.nccl_xml import read_nccl_xml
from kaiwo.topology.sources.node_labels import kueue_topology, labelled_topology, preset_topology
from kaiwo.topology.sources.slurm import read_topology_conf, read_topology_yaml

MAX_BYTES = 64 << 20
HCA_GUIDS = "kaiwo.ai/hca-guids"  # on a node: the GUIDs of its adapters, separated by dots
_YAML = (".yaml", ".yml")

Labels = Sequence[Mapping[str, str]]


def read_source(source: TopologySource, labels: Labels, guids: Mapping[str, str]) -> Topology | None:
    """Reads the file again, if the source has one. `guids`: the node of an adapter that names none."""
    if source.kind in FILE_KINDS:
        return read_topology_text(source, read_file(source.path), guids)
    if source.kind == SourceKind.PRESET:
        return preset_topology(source.keys[0], source.name, labels)
    if source.kind == SourceKind.LABELS:
        return labelled_topology(source.keys, source.name, labels)
    return source.written


def read_topology_text(source: TopologySource, text: str, guids: Mapping[str, str]) -> Topology:
    if source.kind == SourceKind.IBNETDISCOVER:
        return fabric_topology(read_ibnetdiscover(text, source.path), source.name, source.path, guids)
    if source.kind == SourceKind.SLURM:
        if source.path.endswith(_YAML):
            documents = read_values(text, MAX_BYTES)
            return read_topology_yaml(documents[0] if len(documents) == 1 else None, source.name, source.path)
        return read_topology_conf(text, source.name, source.path)
    if source.kind == SourceKind.KUEUE:
        return kueue_topology(read_values(text, MAX_BYTES), source.name, source.path)
    document = read_single(text, source.path, "write one KaiwoTopology", f"kind: {KIND}")
    if document.get("kind") != KIND:
        raise ConfigError(f"{source.path} is no {KIND}; write `kind: {KIND}` with a spec", "kind")
    topology = read_topology(ManifestObject(document, source.path, NO_DEFAULTS, []))
    return replace(topology, name=source.name, source=f"{KIND} in {source.path}")


def with_inner_links(nodes: Sequence[Node], sources: Sequence[TopologySource]) -> list[Node]:
    """The nodes, with the links between their GPUs that NCCL files describe."""
    found = list(nodes)
    for source in sources:
        if source.kind == SourceKind.NCCL:
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


def adapter_guids(nodes: Mapping[str, Node]) -> dict[str, str]:
    """By adapter: its node, as far as labels say it."""
    pairs = ((name, node.labels.get(HCA_GUIDS, "")) for name, node in sorted(nodes.items()))
    return {guid.lower(): name for name, text in pairs if text for guid in text.split(".")}


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
