"""Decode nodes: capacity, labels, taints, and GPUs with ids, models and sizes from the best source available.

The node agent's list comes first. Without it, the extended resource gives the number of GPUs, and labels their model.
"""

import re
from collections.abc import Mapping

import msgspec

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME, VENDOR_LABEL
from kaiwo.clusters.kubernetes.decode.quantities import is_countable, read_offered, read_requested
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.manifests.values.quantities import MIB
from kaiwo.model.gpus.gpu import Gpu, are_mixed, vendor_of
from kaiwo.model.gpus.gpu_models import GPU_MODELS, RESOURCE_VENDORS
from kaiwo.model.node import Node, Taint

DEVICES_ANNOTATION = OUR_PREFIX + "devices"  # the node agent's list, as JSON
CHANGE_ANNOTATION = OUR_PREFIX + "partition-change"  # the partition change under way on the node
MODEL_LABELS = {
    "amd": (OUR_PREFIX + "gpu-model", "amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "nvidia": (OUR_PREFIX + "gpu-model", "nvidia.com/gpu.product"),
}
MEMORY_LABELS = {"amd": ("amd.com/gpu.vram", "beta.amd.com/gpu.vram"), "nvidia": ("nvidia.com/gpu.memory",)}
MAX_GPUS = 1024
_KNOWN = {name.lower(): name for name in GPU_MODELS}
_read_devices = msgspec.json.Decoder(tuple[Gpu, ...]).decode


def read_node(node: wire_objects.Node) -> Node:
    """One node. Apart from GPUs, whatever is not CPU, memory or pods is an extended resource, disk space too."""
    meta, allocatable = node.metadata, dict(node.status.allocatable or {})
    labels = (meta.labels or {}) | {NODE_NAME: meta.name}
    cpu_milli = read_offered("cpu", allocatable.pop("cpu", 0))
    memory_mib = read_offered("memory", allocatable.pop("memory", 0)) // MIB
    pods = read_offered("pods", allocatable.pop("pods", 0))  # none until the kubelet says so
    counts = {name: read_offered(name, allocatable.pop(name, 0)) for name in RESOURCE_VENDORS}
    offers = {RESOURCE_VENDORS[resource]: count for resource, count in counts.items() if count}
    gpus = _gpus(meta.annotations or {}, labels, offers) if offers else ()
    labels |= {VENDOR_LABEL + vendor: "true" for vendor in offers}
    is_ready, reason = _ready(node.status.conditions or ())
    return Node(
        name=meta.name,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        pods=pods,
        gpus=gpus,
        extended={name: read_offered(name, value) for name, value in sorted(allocatable.items())},
        labels=labels,
        taints=tuple(Taint(item.key, item.value, item.effect) for item in node.spec.taints or ()),
        ready=is_ready,
        cordoned=node.spec.unschedulable,
        reason=reason or ("cordoned" if node.spec.unschedulable else ""),
    )


def find_model(label: str) -> str:
    """`AMD_Instinct_MI300X_OAM` is an MI300X; a model that is not in the table keeps its own name."""
    for word in re.split(r"[-_ ]", label.lower()):
        if word in _KNOWN:
            return _KNOWN[word]
    return label


def _gpus(annotations: dict[str, str], labels: dict[str, str], offers: Mapping[str, int]) -> tuple[Gpu, ...]:
    """The GPUs that the kubelet counts, by vendor. With two vendors, a device without a known vendor is left out."""
    listed, first = _listed(annotations), next(iter(offers))
    if listed is not None and len(offers) == 1 and not are_mixed(listed):
        return listed
    found: list[Gpu] = []
    for vendor, count in offers.items():
        mine = [gpu for gpu in listed or () if vendor_of(gpu) == vendor]
        found += mine or _counted(labels, vendor, count, vendor == first)
    return tuple(found[:MAX_GPUS])


def _listed(annotations: dict[str, str]) -> tuple[Gpu, ...] | None:
    """The agent's list; None where there is none or it cannot be right: then the kubelet's count is used."""
    try:
        found = _read_devices(annotations[DEVICES_ANNOTATION]) if annotations.get(DEVICES_ANNOTATION) else None
    except msgspec.DecodeError:
        return None
    return found if found is not None and len(found) <= MAX_GPUS and is_countable(found) else None


def _counted(labels: dict[str, str], vendor: str, count: int, is_first: bool) -> list[Gpu]:
    """GPUs of which only the number and the labels are known. Our own label describes the first vendor's GPUs."""
    names = [name for name in MODEL_LABELS[vendor] if is_first or not name.startswith(OUR_PREFIX)]
    model = find_model(next((labels[name] for name in names if labels.get(name)), f"{vendor}-gpu"))
    known = GPU_MODELS.get(model)
    memory_mib = _memory_mib(labels, vendor) or (known.memory_mib if known else 0)
    prefix, unknown_vendor = "" if is_first else f"{vendor}-", "" if known else vendor
    return [Gpu(f"{prefix}gpu-{at}", model, memory_mib, vendor=unknown_vendor) for at in range(min(count, MAX_GPUS))]


def _memory_mib(labels: dict[str, str], vendor: str) -> int:
    """NVIDIA's labels are in MiB; AMD's have a unit."""
    value = next((labels[name] for name in MEMORY_LABELS[vendor] if labels.get(name)), "")
    if not value:
        return 0
    size = value + "Mi" if value.isdigit() else value + "i" * (value[-1:] in "GT")
    return read_requested("memory", size) // MIB


def _ready(conditions: list[wire_objects.Condition] | tuple[()]) -> tuple[bool, str]:
    """A node that has not reported is not ready."""
    for item in conditions:
        if item.type == "Ready":
            return item.status == "True", "" if item.status == "True" else item.message or item.reason
    return False, "it has not reported yet"
