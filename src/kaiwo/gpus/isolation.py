"""The grade that a request would get of a device: what a filter asks before, and a view says after it was placed.

In:    a request, a device, its node's labels.   Out: a grade; empty when the device cannot be had in the way asked for.
The node's agent has the last word when the work starts; this is the same rule on what the scheduler knows.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kaiwo.model.gpu import GPU_MODELS, WHOLE_MILLI, Gpu
from kaiwo.model.isolation import RANKS, SHARE_GRADE_LABEL
from kaiwo.model.node import Node
from kaiwo.model.partitions import CHIPS
from kaiwo.model.request import Request

UNTOLD = {"amd": "cu-mask", "nvidia": "mps"}  # what a vendor has, where no agent told what the machine has
_NVIDIA = {model.name for model in GPU_MODELS.values() if model.vendor == "nvidia"}
OF_METHOD = {"cu-mask": ("memory-capped", "cu-mask"), "mps": ("mps",)}


def grade_of(want: Request, gpu: Gpu, labels: Mapping[str, str]) -> str:
    """How well the request would be kept apart from its neighbours on this device."""
    if want.is_exclusive:
        return "partition"
    if want.isolation == "partition":
        return ""
    best = share_grade(gpu, labels)
    if want.isolation == "time-slicing":
        return min("time-slicing", best, key=RANKS.__getitem__)
    if best in OF_METHOD["cu-mask"] and _milli(want, gpu) < least_milli(gpu.model):
        best = "time-slicing"
    methods = OF_METHOD.get(want.isolation)
    return best if methods is None or best in methods else ""


def is_mps_on_amd(want: Request, nodes: Iterable[Node]) -> bool:
    """It asks for MPS, on GPUs of any model, and the GPUs that are there are all AMD's."""
    if want.isolation != "mps" or not want.gpus or want.is_exclusive:
        return False
    if want.gpu_models and not set(want.gpu_models) >= _NVIDIA:  # a model was named: that is told
        return False
    makers = {known.vendor if (known := GPU_MODELS.get(gpu.model)) else "" for node in nodes for gpu in node.gpus}
    return makers == {"amd"}


def whole_gpus(node: Node) -> list[Gpu]:
    """The GPUs of a node as they are when they are not cut; each cut one is told by its first partition."""
    found: dict[str, Gpu] = {}
    for gpu in node.gpus:
        if gpu.parent and gpu.parent not in found:
            size_mib = gpu.memory_mib * WHOLE_MILLI // max(1, gpu.milli)
            found[gpu.parent] = replace(gpu, id=gpu.parent, memory_mib=size_mib, parent="", profile="")
        elif not gpu.parent:
            found[gpu.id] = gpu
    return list(found.values())


def share_grade(gpu: Gpu, labels: Mapping[str, str]) -> str:
    """The best that a share of this device can have."""
    told = gpu.share_grade or labels.get(SHARE_GRADE_LABEL, "")
    if told in RANKS:
        return told
    known = GPU_MODELS.get(gpu.model)
    return UNTOLD[known.vendor] if known else "time-slicing"


def least_milli(model: str) -> int:
    """The smallest share that a mask can hold: one compute unit on each XCD. 0 where that is not known."""
    chip = CHIPS.get(model)
    return -(-chip.xcds * WHOLE_MILLI // chip.compute_units) if chip else 0


def _milli(want: Request, gpu: Gpu) -> int:
    return want.gpu_mib * WHOLE_MILLI // max(1, gpu.memory_mib) if want.is_memory else want.gpu_milli
