"""Nodes of Kubernetes in our words.

In:    a node from the wire.   Out: a Node with its GPUs: ids, models and sizes from the best source there is.
The node agent's own list counts first; else the extended resource says how many there are, and labels say which.
"""

import re

import msgspec

from kaiwo.clusters.kubernetes import objects
from kaiwo.clusters.kubernetes.asks import NODE_NAME, VENDOR_LABEL
from kaiwo.clusters.kubernetes.bounds import is_countable
from kaiwo.clusters.kubernetes.quantities import asked, offered, offered_mib
from kaiwo.manifests.annotations import OURS
from kaiwo.manifests.gpu_models import RESOURCE_VENDORS
from kaiwo.manifests.quantities import MIB
from kaiwo.model.gpu import GPU_MODELS, Gpu
from kaiwo.model.node import Node, Taint

DEVICES_NOTE = OURS + "devices"  # the node agent's list, as JSON
CHANGE_NOTE = OURS + "partition-change"  # what is under way on the node: see `runtime.partition_dcm`
MODEL_LABELS = {
    "amd": (OURS + "gpu-model", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "nvidia": (OURS + "gpu-model", "nvidia.com/gpu.product"),
}
MEMORY_LABELS = {"amd": ("amd.com/gpu.vram", "beta.amd.com/gpu.vram"), "nvidia": ("nvidia.com/gpu.memory",)}
MOST_GPUS = 1024
_KNOWN = {name.lower(): name for name in GPU_MODELS}
_read_devices = msgspec.json.Decoder(tuple[Gpu, ...]).decode


def read_node(node: objects.Node) -> Node:
    """One node. What it cannot be asked for (GPUs apart) are extended resources, disk space among them."""
    meta, allocatable = node.metadata, dict(node.status.allocatable or {})
    labels = (meta.labels or {}) | {NODE_NAME: meta.name}
    cpu_milli = offered("cpu", allocatable.pop("cpu", 0))
    memory_mib = offered_mib(allocatable.pop("memory", 0))
    pods = offered("pods", allocatable.pop("pods", 0))  # none until the kubelet says so
    counts = {name: offered(name, allocatable.pop(name, 0)) for name in RESOURCE_VENDORS}
    gpus: tuple[Gpu, ...] = ()
    for resource, count in counts.items():
        if count and not gpus:  # a node with GPUs of two vendors offers those of the first
            vendor = RESOURCE_VENDORS[resource]
            gpus = _gpus(meta.annotations or {}, labels, vendor, count)
            labels[VENDOR_LABEL + vendor] = "true"
    is_ready, reason = _ready(node.status.conditions or ())
    return Node(
        name=meta.name,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        pods=pods,
        gpus=gpus,
        extended={name: offered(name, value) for name, value in sorted(allocatable.items())},
        labels=labels,
        taints=tuple(Taint(item.key, item.value, item.effect) for item in node.spec.taints or ()),
        ready=is_ready,
        cordoned=node.spec.unschedulable,
        reason=reason or ("cordoned" if node.spec.unschedulable else ""),
    )


def find_model(label: str) -> str:
    """`AMD_Instinct_MI300X_OAM` is an MI300X; what is not in the table keeps its own name."""
    for word in re.split(r"[-_ ]", label.lower()):
        if word in _KNOWN:
            return _KNOWN[word]
    return label


def _gpus(notes: dict[str, str], labels: dict[str, str], vendor: str, count: int) -> tuple[Gpu, ...]:
    if listed := notes.get(DEVICES_NOTE):
        try:
            found = _read_devices(listed)
            if len(found) <= MOST_GPUS and is_countable(found):
                return found
        except msgspec.DecodeError:
            pass  # the count below is true even when the agent's list is not
    written = next((labels[name] for name in MODEL_LABELS[vendor] if labels.get(name)), f"{vendor}-gpu")
    model = find_model(written)
    memory_mib = _memory_mib(labels, vendor) or (GPU_MODELS[model].memory_mib if model in GPU_MODELS else 0)
    return tuple(Gpu(f"gpu-{index}", model, memory_mib) for index in range(min(count, MOST_GPUS)))


def _memory_mib(labels: dict[str, str], vendor: str) -> int:
    """NVIDIA's labels count MiB, AMD's have a unit."""
    value = next((labels[name] for name in MEMORY_LABELS[vendor] if labels.get(name)), "")
    if not value:
        return 0
    size = value + "Mi" if value.isdigit() else value + "i" * (value[-1:] in "GT")
    return asked("memory", size) // MIB


def _ready(conditions: list[objects.Condition] | tuple[()]) -> tuple[bool, str]:
    """A node that says nothing of itself is not ready."""
    for item in conditions:
        if item.type == "Ready":
            return item.status == "True", "" if item.status == "True" else item.message or item.reason
    return False, "it has not reported yet"
