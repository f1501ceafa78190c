"""What a local cluster is made of: the default, `--nodes` and `--gpu-model`, or a YAML cluster file.

    nodes:
      - name: big            # big-1 ... big-4
        count: 4
        gpus: 8
        model: MI300X
        partition: CPX+NPS4  # how its GPUs are cut; left out: not at all
        cpu: 192             # "500m" is half of one
        memory: 2Ti
        labels: {topology.kaiwo.ai/leaf: leaf-1}
        taints: [{key: reserved, value: lab, effect: NoSchedule}]

In:    flags or YAML text.   Out: nodes.
Never: guesses. A ConfigError names the place and what may stand there.
"""

import re
from typing import Any

import msgspec
import yaml

from kaiwo.model.errors import ConfigError
from kaiwo.model.gpu import GPU_MODELS, Gpu
from kaiwo.model.node import MOST_NODES, Node, Taint
from kaiwo.model.partitions import Mode, cut, legal_modes

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
NODES_A_LEAF = 4
MOST_GPUS = 1024

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
UNITS = {
    "": 1 / (1 << 20),
    "Ki": 1 / 1024,
    "Mi": 1,
    "Gi": 1 << 10,
    "Ti": 1 << 20,
    "M": 1e6 / (1 << 20),
    "G": 1e9 / (1 << 20),
}


class NodeGroup(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of a cluster file: `count` equal nodes."""

    name: str = "node"
    count: int = 1
    gpus: int = DEFAULT_GPUS
    model: str = DEFAULT_MODEL
    gpu_memory: str | int | None = msgspec.field(default=None, name="gpuMemory")
    cpu: str | int | float = DEFAULT_CPU_MILLI // 1000
    memory: str | int = "2Ti"
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    partition: str = ""


class ClusterFile(msgspec.Struct, forbid_unknown_fields=True):
    """A whole cluster file."""

    nodes: tuple[NodeGroup, ...]


def virtual_nodes(count: int = DEFAULT_NODES, model: str = DEFAULT_MODEL) -> tuple[Node, ...]:
    """The cluster that `--nodes` and `--gpu-model` ask for: four nodes to a leaf, all under one spine."""
    if not 1 <= count <= MOST_NODES:
        raise ConfigError(f"--nodes is {count}; it must be between 1 and {MOST_NODES:,}", "--nodes")
    _check_model(model, "--gpu-model")
    return nodes_of(ClusterFile((NodeGroup(count=count, model=model),)))


def read_cluster_file(text: str, where: str = "the cluster file") -> tuple[Node, ...]:
    """The nodes of a YAML cluster file."""
    try:
        raw: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(
            f"{where} is not YAML{line}: {getattr(error, 'problem', None) or 'it cannot be read'}"
        ) from error
    if not isinstance(raw, dict) or "nodes" not in raw:
        raise ConfigError(f"{where} must have a list `nodes`", "nodes")
    try:
        file = msgspec.convert(raw, ClusterFile)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$.")
        raise ConfigError(f"{where}: {field or 'nodes'}: {message}", field) from error
    return nodes_of(file, where)


def nodes_of(file: ClusterFile, where: str = "the cluster file") -> tuple[Node, ...]:
    """Every node by name; places in the topology are filled in where the file names none."""
    if not file.nodes:
        raise ConfigError(f"{where} has no nodes; give at least one", "nodes")
    nodes: dict[str, Node] = {}
    for index, group in enumerate(file.nodes):
        at = f"nodes[{index}]"
        _check_group(group, where, at)
        for number in range(1, group.count + 1):
            name = group.name if group.count == 1 and group.name != "node" else _numbered(group, number)
            if name in nodes:
                raise ConfigError(
                    f"{where}: {at}.name: there are two nodes named {name}; name one differently", f"{at}.name"
                )
            nodes[name] = _node(name, group, len(nodes), where, at)
    if len(nodes) > MOST_NODES:
        raise ConfigError(f"{where} has {len(nodes):,} nodes; at most {MOST_NODES:,} are possible", "nodes")
    return tuple(nodes.values())


def gpus_of(model: str, count: int, memory_mib: int, partition: str = "") -> tuple[Gpu, ...]:
    """Equal devices, `gpu-0` and on, or the partitions `gpu-0-p0` and on."""
    whole = (Gpu(f"gpu-{index}", model, memory_mib) for index in range(count))
    return tuple(part for gpu in whole for part in (cut(gpu, _mode(partition)) if partition else (gpu,)))


def _mode(partition: str) -> Mode:
    compute, _, memory = partition.upper().partition("+")
    return Mode(compute, memory or "NPS1")


def _numbered(group: NodeGroup, number: int) -> str:
    return f"{group.name}-{number:0{len(str(group.count))}d}"


def _node(name: str, group: NodeGroup, position: int, where: str, at: str) -> Node:
    leaf = position // NODES_A_LEAF + 1
    labels = {
        HOST_LABEL: name,
        VIRTUAL_LABEL: "true",
        SPINE_LABEL: "spine-1",
        LEAF_LABEL: f"leaf-{leaf}",
        **({MODEL_LABEL: group.model} if group.gpus else {}),
        **group.labels,
    }
    known = GPU_MODELS.get(group.model)
    memory_mib = known.memory_mib if known else 0
    if group.gpu_memory is not None:
        memory_mib = _mib(group.gpu_memory, where, f"{at}.gpuMemory")
    return Node(
        name=name,
        cpu_milli=_cpu_milli(group.cpu, where, f"{at}.cpu"),
        memory_mib=_mib(group.memory, where, f"{at}.memory"),
        gpus=gpus_of(group.model, group.gpus, memory_mib, group.partition),
        labels=labels,
        taints=group.taints,
    )


def _check_group(group: NodeGroup, where: str, at: str) -> None:
    if not NAME.fullmatch(group.name):
        raise ConfigError(
            f"{where}: {at}.name: {group.name!r} is no node name; use small letters, digits, '-' and '.'", f"{at}.name"
        )
    if not 1 <= group.count <= MOST_NODES:
        raise ConfigError(
            f"{where}: {at}.count is {group.count}; it must be between 1 and {MOST_NODES:,}", f"{at}.count"
        )
    if not 0 <= group.gpus <= MOST_GPUS:
        raise ConfigError(f"{where}: {at}.gpus is {group.gpus}; it must be between 0 and {MOST_GPUS:,}", f"{at}.gpus")
    if group.gpus and group.gpu_memory is None:
        _check_model(group.model, f"{at}.model", where)
    if group.partition and _mode(group.partition) not in legal_modes(group.model):
        modes = ", ".join("+".join(mode) for mode in legal_modes(group.model)) or "none"
        raise ConfigError(
            f"{where}: {at}.partition: {group.model} cannot be {group.partition!r}; it can be {modes}",
            f"{at}.partition",
        )
    for taint in group.taints:
        if taint.effect not in EFFECTS:
            raise ConfigError(
                f"{where}: {at}.taints: the effect {taint.effect!r} is none of {', '.join(EFFECTS)}", f"{at}.taints"
            )


def _check_model(model: str, field: str, where: str = "") -> None:
    if model not in GPU_MODELS:
        prefix = f"{where}: " if where else ""
        hint = "" if field.startswith("--") else ", or give gpuMemory for a model of your own"
        raise ConfigError(
            f"{prefix}{field}: {model!r} is not a known GPU model; use one of {', '.join(GPU_MODELS)}{hint}", field
        )


def _cpu_milli(value: str | int | float, where: str, field: str) -> int:
    text = str(value)
    try:
        milli = int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)
    except (ValueError, OverflowError):
        milli = 0
    if milli <= 0:
        raise ConfigError(f"{where}: {field} is {value!r}; write cores (64) or thousandths of one (500m)", field)
    return milli


def _mib(value: str | int, where: str, field: str) -> int:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)(Ki|Mi|Gi|Ti|M|G|)", str(value))
    mib = round(float(match[1]) * UNITS[match[2]]) if match else 0
    if mib <= 0:
        raise ConfigError(f"{where}: {field} is {value!r}; write a size such as 512Gi or 2Ti", field)
    return mib
