"""The words of sharing: what is held of which device, how it is kept apart, and how well.

In:    an inventory.   Out: the devices that can be shared, by the names that the scheduler uses.
"""

import re
from collections import Counter
from typing import Literal

import msgspec

from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu
from kaiwo.model.gpu import Share

IsolationMethod = Literal["whole", "partition", "mps", "cu-mask", "time-slicing"]
IsolationGrade = Literal["partition", "memory-capped", "cu-mask", "mps", "time-slicing", "none"]

AMD_SERIAL = re.compile(r"0x(?!0{16})[0-9a-f]{16}")


class GpuDevice(msgspec.Struct, frozen=True):
    """What the writers must know of one device: a whole GPU or a partition of one."""

    id: str
    vendor: str  # amd | nvidia
    order: int | None = None  # in the vendor's runtime; None: not known
    uuid: str = ""  # by which the vendor's runtime knows it; empty: by its number only
    pci: str = ""
    memory_mib: int = 0
    compute_units: int = 0
    xcds: int = 1
    target: str = ""
    is_partition: bool = False
    node: int | None = None  # of AMD's topology: ROCr counts in this order, from whatever it begins


class GrantRequest(msgspec.Struct, frozen=True):
    """What one pod got from the scheduler, and how it wants it kept apart."""

    owner: str  # unique while it runs
    shares: tuple[Share, ...]
    isolation: str = ""  # mps | time-slicing | cu-mask | partition; empty: the best there is
    least_grade: str = ""  # empty: any


class GrantedDevice(msgspec.Struct, frozen=True):
    """One device of a grant."""

    device: GpuDevice
    milli: int
    mib: int
    units: tuple[int, ...] = ()  # the compute units of its mask; empty: no mask
    name: str = ""  # by which the scheduler gave it: the device's id, or a longer one


class Grant(msgspec.Struct, frozen=True):
    """How one pod's devices are kept apart from its neighbours'."""

    owner: str
    method: IsolationMethod
    grade: IsolationGrade
    held: tuple[GrantedDevice, ...]
    note: str = ""  # what the person should know: translated, weaker than it seems, oversubscribed
    cgroup: str = ""  # the group that caps its device memory: the process must be put into it
    environment: dict[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Why a share cannot be given so, and what can."""

    reason: str


class IsolationSupport(msgspec.Struct, frozen=True):
    """What this machine offers beside its devices."""

    mps_control: str = ""  # the path of nvidia-cuda-mps-control; empty: there is none
    dmem_regions: tuple[str, ...] = ()  # that the kernel can cap: drm/0000:05:00.0/vram
    mps_on_amd: Literal["refuse", "cu-mask"] = "refuse"  # the policy: translate, or say no
    in_containers: bool = False  # the kubelet makes the cgroups of processes here, and nobody can cap them in time


def devices_by_id(inventory: Inventory) -> dict[str, GpuDevice]:
    """Every device by its id; a whole GPU beside cut ones by the longer id that carries its UUID, too."""
    found: dict[str, GpuDevice] = {}
    serials = Counter(gpu.serial for gpu in inventory.gpus)
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            device = _device(gpu, part, _uuid(gpu, part, is_only=serials[gpu.serial] == 1))
            found[device.id] = device
            if part is gpu and gpu.serial.startswith("GPU-"):
                found[f"{gpu.id}-{gpu.serial}"] = device
    return found


def _uuid(gpu: PhysicalGpu, part: PhysicalGpu | Partition, is_only: bool) -> str:
    if isinstance(part, Partition):
        return part.uuid
    if gpu.vendor == "nvidia":
        return gpu.serial
    # As ROCr writes it. The partitions of a GPU may all have its number, so that it means none of them.
    is_known = gpu.vendor == "amd" and is_only and AMD_SERIAL.fullmatch(gpu.serial)
    return f"GPU-{gpu.serial[2:].upper()}" if is_known else ""


def _device(gpu: PhysicalGpu, part: PhysicalGpu | Partition, uuid: str) -> GpuDevice:
    return GpuDevice(
        id=part.id,
        vendor=gpu.vendor,
        order=part.order,
        uuid=uuid,
        pci=gpu.pci,
        memory_mib=part.memory_mib,
        compute_units=part.compute_units,
        xcds=max(1, part.xcds),
        target=gpu.target,
        is_partition=isinstance(part, Partition),
        node=part.node,
    )
