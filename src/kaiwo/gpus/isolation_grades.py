"""The isolation grade that a request would get on a device, and which tenants of a device exclude each other.

The node's agent decides when the workload starts; this is the same rule, applied to what the scheduler knows.
A pod that demands a grade shares a device only with pods that have limits, too.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from kaiwo.model.gpus.gpu import (
    DEMANDS_LIMITS,
    GRADE_RANKS,
    MIN_LIMITED_GRADE,
    SHARE_GRADE_LABEL,
    TAKES_TURNS,
    WHOLE_MILLI,
    Gpu,
    is_grade_enough,
)
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.snapshot.array_types import BoolArray, Rows
from kaiwo.snapshot.view import View

# The grade of a share where no agent reports what its machine supports.
DEFAULT_SHARE_GRADES = {"amd": "cu-mask", "nvidia": "mps"}
_NVIDIA = {model.name for model in GPU_MODELS.values() if model.vendor == "nvidia"}
GRADES_OF_METHOD = {"cu-mask": ("memory-capped", "cu-mask"), "mps": ("mps",)}


def grade_of(want: Request, gpu: Gpu, labels: Mapping[str, str]) -> str:
    """The grade of the request on this device; empty if it can't have the isolation it asks for."""
    if want.is_exclusive:
        return "partition"
    if want.isolation == "partition":
        return ""
    best = share_grade(gpu, labels)
    if want.isolation == "time-slicing":
        return min("time-slicing", best, key=GRADE_RANKS.__getitem__)
    if best in GRADES_OF_METHOD["cu-mask"] and _milli(want, gpu) < smallest_masked_milli(gpu.model):
        best = "time-slicing"
    methods = GRADES_OF_METHOD.get(want.isolation)
    return best if methods is None or best in methods else ""


def is_mps_on_amd(want: Request, nodes: Iterable[Node]) -> bool:
    """True if the request asks for MPS without naming a model, and all GPUs are AMD's."""
    if want.isolation != "mps" or not want.gpus or want.is_exclusive:
        return False
    if want.gpu_models and not set(want.gpu_models) >= _NVIDIA:  # it names a model, so it has another obstacle
        return False
    makers = {known.vendor if (known := GPU_MODELS.get(gpu.model)) else "" for node in nodes for gpu in node.gpus}
    return makers == {"amd"}


def whole_gpus(node: Node) -> list[Gpu]:
    """The GPUs of a node as if none were partitioned; the first partition stands for its GPU."""
    found: dict[str, Gpu] = {}
    for gpu in node.gpus:
        if gpu.parent and gpu.parent not in found:
            size_mib = gpu.memory_mib * WHOLE_MILLI // max(1, gpu.milli)
            found[gpu.parent] = replace(gpu, id=gpu.parent, memory_mib=size_mib, parent="", profile="")
        elif not gpu.parent:
            found[gpu.id] = gpu
    return list(found.values())


def share_grade(gpu: Gpu, labels: Mapping[str, str]) -> str:
    reported = gpu.share_grade or labels.get(SHARE_GRADE_LABEL, "")
    if reported in GRADE_RANKS:
        return reported
    known = GPU_MODELS.get(gpu.model)
    return DEFAULT_SHARE_GRADES[known.vendor] if known else "time-slicing"


def smallest_masked_milli(model: str) -> int:
    """The smallest share that a CU mask allows: one compute unit of each XCD; 0 if unknown."""
    chip = CHIPS.get(model)
    return -(-chip.xcds * WHOLE_MILLI // chip.compute_units) if chip else 0


def _milli(want: Request, gpu: Gpu) -> int:
    return want.milli_on(gpu.memory_mib) if want.is_memory else want.gpu_milli


def closed_by_tenants(view: View, want: Request, nodes: Rows) -> BoolArray | None:
    """Devices where the tenants and this share would not be isolated as one of them demands; None: there are none."""
    tenancy = view.tenants
    if want.beside == DEMANDS_LIMITS:
        places = [(row, column) for row, column, milli in tenancy.small if _is_unlimited(view, row, column, milli)]
    else:
        places = [place for place in tenancy.demanding if not _gets_limits(view, want, *place)]
    if not places:
        return None
    closed = np.zeros((len(view.nodes.names), view.nodes.width), np.bool_)
    closed[tuple(np.array(places).T)] = True
    return closed[nodes]


def tenants_allow_return(view: View, pod: Pod, row: int) -> bool:
    """True if an evicted pod may return: no tenant of its devices must be isolated from it."""
    tenancy, columns = view.tenants, view.nodes.column[row]
    places = [(columns[share.gpu], share.milli) for share in pod.devices if share.gpu in columns]
    if pod.beside == DEMANDS_LIMITS:
        mine = {column for column, _ in places}
        there = (each for each in tenancy.small if each[0] == row and each[1] in mine)
        return not any(_is_unlimited(view, *each) for each in there)
    return not any(
        (row, column) in tenancy.demanding
        and _is_unlimited(view, row, column, 0 if pod.beside == TAKES_TURNS else milli)
        for column, milli in places
    )


def _is_unlimited(view: View, row: int, column: int, milli: int) -> bool:
    return milli == 0 or milli < smallest_masked_milli(view.nodes.nodes[row].gpus[column].model)


def _gets_limits(view: View, want: Request, row: int, column: int) -> bool:
    node = view.nodes.nodes[row]
    grade = grade_of(want, node.gpus[column], node.labels)
    return bool(grade) and is_grade_enough(grade, MIN_LIMITED_GRADE)
