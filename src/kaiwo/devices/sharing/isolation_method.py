"""Choose how a share of a GPU is isolated: MPS, CU mask, time-slicing, or a whole device.

Never: chooses a weaker method than the one asked for by name without saying so.
"""

import msgspec

from kaiwo.devices.sharing.cu_mask import least_milli, unit_count, why_unmaskable
from kaiwo.devices.sharing.share_types import (
    GpuDevice,
    GrantRequest,
    IsolationGrade,
    IsolationMethod,
    IsolationSupport,
    Refusal,
)
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share, is_grade_enough

NO_MPS_ON_AMD = (
    "AMD GPUs have no MPS; ask for gpu-isolation cu-mask (a fixed set of compute units), partition (a part of "
    "the chip) or time-slicing"
)

NO_CONTROL = "nvidia-cuda-mps-control is not installed here"
NO_RIGHT = "the agent has no right to start MPS daemons here"


class IsolationChoice(msgspec.Struct, frozen=True):
    method: IsolationMethod
    grade: IsolationGrade
    note: str = ""


def choose_isolation(
    request: GrantRequest, share: Share, device: GpuDevice, platform: IsolationSupport
) -> IsolationChoice | Refusal:
    found = _method(request, share, device, platform)
    if isinstance(found, Refusal) or is_grade_enough(found.grade, request.least_grade):
        return found
    return Refusal(
        f"{device.id} can be shared only with grade {found.grade}, but {request.least_grade} is required; "
        f"{_stronger_options(device, platform)}"
    )


def share_grade(device: GpuDevice, platform: IsolationSupport) -> str:
    """The grade of a share of this device, as the scheduler sees it; empty for a partition."""
    share = Share(device.id, WHOLE_MILLI // 2, 0)
    choice = None if device.is_partition else choose_isolation(GrantRequest("", (share,)), share, device, platform)
    return choice.grade if isinstance(choice, IsolationChoice) else ""


def dmem_region(device: GpuDevice) -> str:
    return f"drm/{device.pci}/vram"


def _method(
    request: GrantRequest, share: Share, device: GpuDevice, platform: IsolationSupport
) -> IsolationChoice | Refusal:
    # The milli of a partition count its physical GPU: a share with all the memory has the whole partition.
    is_all = share.milli >= WHOLE_MILLI or (device.is_partition and 0 < device.memory_mib <= share.mib)
    if is_all:
        return IsolationChoice("partition" if device.is_partition else "whole", "partition")
    if request.isolation == "partition":
        return Refusal(f"a fraction of {device.id} is not a partition; ask for a partition profile instead")
    if request.isolation == "mps" and device.vendor == "amd":
        return Refusal(NO_MPS_ON_AMD)
    if request.isolation == "cu-mask" and device.vendor == "nvidia":
        return Refusal("compute-unit masks exist on AMD GPUs only; on NVIDIA ask for mps or time-slicing")
    if request.isolation == "time-slicing":
        return IsolationChoice("time-slicing", "time-slicing")
    return _nvidia(request, platform) if device.vendor == "nvidia" else _amd(request, share, device, platform)


def _nvidia(request: GrantRequest, platform: IsolationSupport) -> IsolationChoice | Refusal:
    if platform.mps_control:
        return IsolationChoice("mps", "mps")
    why, remedy = (NO_CONTROL, "install it") if platform.may_use_mps else (NO_RIGHT, "set agent.mps in the chart")
    if request.isolation == "mps":
        return Refusal(f"{why}; {remedy}, or ask for time-slicing")
    return IsolationChoice("time-slicing", "time-slicing", why)


def _amd(
    request: GrantRequest, share: Share, device: GpuDevice, platform: IsolationSupport
) -> IsolationChoice | Refusal:
    why = why_unmaskable(device)
    if not why and not unit_count(device, share.milli):
        least = least_milli(device) / WHOLE_MILLI
        why = f"a mask needs one compute unit on each of {device.xcds} XCDs: at least {least:g} of the GPU"
    if why and request.isolation == "cu-mask":
        return Refusal(f"{device.id}: {why}; ask for time-slicing")
    if why:
        return IsolationChoice("time-slicing", "time-slicing", why)
    # The kernel counts a GPU's memory as a whole, not per partition.
    is_capped = dmem_region(device) in platform.dmem_regions and not device.is_partition and not platform.in_containers
    return IsolationChoice("cu-mask", "memory-capped" if is_capped else "cu-mask")


def _stronger_options(device: GpuDevice, platform: IsolationSupport) -> str:
    if device.vendor == "amd" and platform.in_containers:
        return "ask for a partition or a whole GPU: on Kubernetes no share's memory is capped"
    if device.vendor == "amd":
        return "ask for a partition or a whole GPU, or use a kernel with the dmem controller for memory-capped"
    return "ask for a MIG partition or a whole GPU"


MAX_PROCESSES, MAX_QUEUES = 11, 24


def oversubscription(vendor: str, processes: int, queues: int = 0) -> str:
    if vendor != "amd":
        return ""
    if processes > MAX_PROCESSES:
        return f"{processes} processes share the GPU, and it runs at most {MAX_PROCESSES} without swapping queues"
    if queues > MAX_QUEUES:
        return f"{queues} queues share the GPU, and it holds at most {MAX_QUEUES}"
    return ""
