"""Read the nodes of a local cluster from `--nodes` and `--gpu-model`, or from a YAML cluster file.

    nodes:
      - name: big            # big-1 ... big-4
        count: 4
        gpus: 8
        model: MI300X
        partition: CPX+NPS4  # the partition mode of its GPUs; default: not partitioned
        cpu: 192             # "500m" is half a core
        memory: 2Ti
        labels: {topology.kaiwo.ai/leaf: leaf-1}
        taints: [{key: reserved, value: lab, effect: NoSchedule}]

    topology:                # where the network is described; default: the labels above
      - {ibnetdiscover: fabric.out}
      - {labels: [example.com/block, example.com/rack]}

Paths are relative to the file. A ConfigError names the file, the field and the allowed values.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.manifests.kinds.topology import read_access, read_topology_spec
from kaiwo.manifests.text.field_errors import FieldPath, show, suggest
from kaiwo.manifests.text.field_reader import FieldReader
from kaiwo.manifests.text.read_documents import read_single
from kaiwo.manifests.values.names import check_label_key, check_label_value, check_labels, read_name
from kaiwo.manifests.values.quantities import read_cpu_milli, read_gpu_mib, read_memory_mib
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, legal_modes, partition_gpu, read_mode
from kaiwo.model.network.topology_source import SourceKind, TopologySource
from kaiwo.model.node import MAX_VIRTUAL_NODES, Node, Taint

VIRTUAL_LABEL = "kaiwo.ai/virtual"
SPINE_LABEL = "topology.kaiwo.ai/spine"
LEAF_LABEL = "topology.kaiwo.ai/leaf"
HOST_LABEL = "kubernetes.io/hostname"
MODEL_LABEL = "kaiwo.ai/gpu-model"

DEFAULT_NODES = 8
DEFAULT_GPUS = 8
DEFAULT_MODEL = "MI300X"
DEFAULT_CPU_MILLI = 192_000
DEFAULT_MEMORY_MIB = 2 << 20
NODES_PER_LEAF = 4
MAX_GPUS = 1024
MAX_PLACES = 1_000_000  # nodes times the devices of the largest: the scheduler's tables have a place for each
THE_FILE = "the cluster file"
EXAMPLE = "{name: big, count: 4, gpus: 8}"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class NodeGroup(msgspec.Struct, frozen=True):
    """One entry of a cluster file: `count` equal nodes."""

    name: str = "node"
    count: int = 1
    gpus: int = DEFAULT_GPUS
    model: str = DEFAULT_MODEL
    gpu_mib: int = 0  # 0: as the model has
    cpu_milli: int = DEFAULT_CPU_MILLI
    memory_mib: int = DEFAULT_MEMORY_MIB
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    partition: str = ""


def virtual_nodes(count: int = DEFAULT_NODES, model: str = DEFAULT_MODEL) -> tuple[Node, ...]:
    """Four nodes to a leaf, all under one spine."""
    if not 1 <= count <= MAX_VIRTUAL_NODES:
        raise FieldPath("", "--nodes").error(f"is {count}; it must be between 1 and {MAX_VIRTUAL_NODES:,}")
    if model not in GPU_MODELS:
        raise _unknown_model(model, FieldPath("", "--gpu-model"), "")
    return nodes_of((NodeGroup(count=count, model=model),))


def read_cluster_file(text: str | bytes, where: str = THE_FILE) -> tuple[Node, ...]:
    way_out, example = "write one list `nodes` in one document", f"nodes: [{EXAMPLE}]"
    fields = FieldReader(read_single(text, where, way_out, example, "nodes"), where, [])
    groups = fields.items("nodes")
    fields.skip("topology")
    fields.finish()
    if not groups:
        fact = "is empty" if fields.has("nodes") else "is missing"
        raise fields.path_of("nodes").error(f"{fact}; write at least one, such as - {EXAMPLE}")
    return nodes_of([_read_group(group) for group in groups], where)


def read_topology_sources(text: str | bytes, where: str = THE_FILE) -> tuple[TopologySource, ...]:
    """The entries of `topology`; the nodes are not checked."""
    document = read_single(text, where, "write it as one document", "nodes: []", "topology")
    fields = FieldReader(document, where, [])
    found = [_read_source(source) for source in fields.items("topology")]
    names = [source.name for source in found if source.kind != SourceKind.NCCL]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise fields.path_of("topology").error(f"has two topologies named {twice}; give each a name of its own")
    return tuple(found)


def parse_topology_option(text: str) -> TopologySource:
    """`KIND=VALUE` of `kaiwo up --topology`: `ibnetdiscover=fabric.out`, `labels=a,b`, `preset=aws`."""
    kind, equals, value = text.partition("=")
    kinds = [each.value for each in SourceKind if each != SourceKind.WRITTEN]
    if not equals or not value or kind not in kinds:
        raise FieldPath("", "--topology").error(
            f"is {show(text)}; write KIND=VALUE with KIND one of {', '.join(kinds)}"
        )
    keys = tuple(value.split(",")) if kind in (SourceKind.LABELS, SourceKind.PRESET) else ()
    return TopologySource(SourceKind(kind), keys[0] if kind == SourceKind.PRESET else kind, "" if keys else value, keys)


def nodes_of(groups: Sequence[NodeGroup], where: str = THE_FILE) -> tuple[Node, ...]:
    """The nodes of all groups. A node gets a leaf and a spine unless the labels of its group name them."""
    if (total := sum(group.count for group in groups)) > MAX_VIRTUAL_NODES:
        raise FieldPath(where, "nodes").error(f"has {total:,} nodes in all; at most {MAX_VIRTUAL_NODES:,} are possible")
    _check_devices(groups, total, where)
    nodes: dict[str, Node] = {}
    for index, group in enumerate(groups):
        for number in range(1, group.count + 1):
            numbered = f"{group.name}-{number:0{len(str(group.count))}d}"
            name = group.name if group.count == 1 and group.name != "node" else numbered
            if name in nodes:
                place = FieldPath(where, f"nodes[{index}].name")
                raise place.error(f"makes a second node named {name}; name one of the two differently")
            nodes[name] = _node(name, group, len(nodes))
    return tuple(nodes.values())


def gpus_of(model: str, count: int, memory_mib: int, partition: str = "") -> tuple[Gpu, ...]:
    """Equal devices from `gpu-0` on, or their partitions from `gpu-0-p0` on."""
    whole = (Gpu(f"gpu-{index}", model, memory_mib) for index in range(count))
    return tuple(part for gpu in whole for part in (partition_gpu(gpu, _mode(partition)) if partition else (gpu,)))


def _read_group(fields: FieldReader) -> NodeGroup:
    group = NodeGroup(
        name=fields.read("name", read_name, "node"),
        count=fields.integer("count", 1, 1, MAX_VIRTUAL_NODES),
        gpus=fields.integer("gpus", DEFAULT_GPUS, 0, MAX_GPUS),
        model=fields.text("model", DEFAULT_MODEL),
        gpu_mib=fields.read("gpuMemory", read_gpu_mib, 0),
        cpu_milli=fields.read("cpu", read_cpu_milli, DEFAULT_CPU_MILLI),
        memory_mib=fields.read("memory", read_memory_mib, DEFAULT_MEMORY_MIB),
        labels=check_labels(fields.text_map("labels"), fields.path_of("labels")),
        taints=tuple(_read_taint(taint) for taint in fields.items("taints")),
        partition=fields.text("partition"),
    )
    fields.finish()
    for name, amount, example in (("cpu", group.cpu_milli, "64 or 500m"), ("memory", group.memory_mib, "512Gi")):
        if not amount:
            raise fields.path_of(name).error(f"is 0, so that nothing fits on the node; write it as {example}")
    if group.gpus and (not group.model or (not group.gpu_mib and group.model not in GPU_MODELS)):
        raise _unknown_model(group.model, fields.path_of("model"), ", or give gpuMemory for a model of your own")
    check_label_value(group.model, fields.path_of("model"))  # the node gets a label with it
    if group.partition and _mode(group.partition) not in legal_modes(group.model):
        modes = ", ".join(mode.profile for mode in legal_modes(group.model))
        way_out = f"write one of {modes}" if modes else "leave it out"
        raise fields.path_of("partition").error(
            f"is {show(group.partition)}, which {group.model} cannot be cut into; {way_out}"
        )
    return group


def _read_source(fields: FieldReader) -> TopologySource:
    kinds = [kind for kind in SourceKind if fields.has(kind)]
    if len(kinds) != 1:
        fact = f"has both {kinds[0]} and {kinds[1]}" if kinds else "names no source"
        known = ", ".join(SourceKind)
        raise FieldPath(fields.owner, fields.prefix).error(f"{fact}; write exactly one of {known}")
    kind = kinds[0]
    if kind == SourceKind.WRITTEN:
        name = fields.read("name", read_name, "written")
        where = f"{fields.owner}: {fields.prefix}"
        return TopologySource(kind, name, written=read_topology_spec(fields, name, where, fields.owner))
    keys = fields.texts(kind) if kind == SourceKind.LABELS else ()
    value = "" if keys else fields.text(kind)
    name = fields.read("name", read_name, value if kind == SourceKind.PRESET else str(kind))
    nodes = fields.texts("nodes") if kind == SourceKind.NCCL else ()
    access = read_access(fields) if kind != SourceKind.NCCL else ()
    fields.finish()
    if not keys and not value:
        raise fields.path_of(kind).error("is empty; write a path, a preset or label keys")
    if kind == SourceKind.PRESET:
        return TopologySource(kind, name, keys=(value,), access=access)
    for at, key in enumerate(keys):
        check_label_key(key, fields.path_of(f"{kind}[{at}]"))
    return TopologySource(kind, name, value, keys, nodes, access=access)


def _read_taint(fields: FieldReader) -> Taint:
    if not fields.has("key"):
        raise fields.path_of("key").error("is missing; write it, such as {key: reserved, effect: NoSchedule}")
    taint = Taint(fields.text("key"), fields.text("value"), fields.choice("effect", EFFECTS, EFFECTS[0]))
    fields.finish()
    check_label_key(taint.key, fields.path_of("key"))
    check_label_value(taint.value, fields.path_of("value"))
    return taint


def _mode(partition: str) -> Mode:
    compute, memory = read_mode(partition.upper())
    return Mode(compute, memory or "NPS1")


def _check_devices(groups: Sequence[NodeGroup], total: int, where: str) -> None:
    """Check before the devices are created: there may be more than fit into memory."""
    most = max((group.gpus * len(gpus_of(group.model, 1, 0, group.partition)) for group in groups), default=0)
    if total * most > MAX_PLACES:
        raise FieldPath(where, "nodes").error(
            f"has {total:,} nodes and up to {most:,} devices on one; the two multiplied may be at most "
            f"{MAX_PLACES:,}, so write fewer nodes, fewer GPUs or fewer partitions"
        )


def _node(name: str, group: NodeGroup, position: int) -> Node:
    labels = {
        HOST_LABEL: name,
        VIRTUAL_LABEL: "true",
        SPINE_LABEL: "spine-1",
        LEAF_LABEL: f"leaf-{position // NODES_PER_LEAF + 1}",
        **({MODEL_LABEL: group.model} if group.gpus else {}),
        **group.labels,
    }
    known = GPU_MODELS.get(group.model)
    memory_mib = group.gpu_mib or (known.memory_mib if known else 0)
    return Node(
        name=name,
        cpu_milli=group.cpu_milli,
        memory_mib=group.memory_mib,
        gpus=gpus_of(group.model, group.gpus, memory_mib, group.partition),
        labels=labels,
        taints=group.taints,
    )


def _unknown_model(model: str, place: FieldPath, or_else: str) -> ConfigError:
    near = suggest(model, GPU_MODELS)
    return place.error(
        f"is {show(model)}, which is no known GPU model; write one of {', '.join(GPU_MODELS)}{or_else}{near}"
    )
