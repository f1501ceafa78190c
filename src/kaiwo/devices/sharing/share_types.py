"""The types of GPU sharing: devices, requests, grants, and what isolation this machine supports."""

import re
from collections import Counter
from typing import Literal

import msgspec

from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu
from kaiwo.model.gpus.gpu import Share, with_uuid

IsolationMethod = Literal["whole", "partition", "mps", "cu-mask", "time-slicing"]
IsolationGrade = Literal["partition", "memory-capped", "cu-mask", "mps", "time-slicing", "none"]

AMD_SERIAL = re.compile(r"0x(?!0{16})[0-9a-f]{16}")


class GpuDevice(msgspec.Struct, frozen=True):
    id: str
    vendor: str  # amd | nvidia
    order: int | None = None  # its index in the vendor's runtime; None: unknown
    uuid: str = ""  # its name in the vendor's runtime; empty: it has only an index
    pci: str = ""
    memory_mib: int = 0
    compute_units: int = 0
    xcds: int = 1
    target: str = ""
    is_partition: bool = False
    node: int | None = None  # its KFD node; ROCr numbers devices in this order


class GrantRequest(msgspec.Struct, frozen=True):
    """The devices that the scheduler gave one pod, and the isolation that the pod asks for."""

    owner: str  # unique among running pods
    shares: tuple[Share, ...]
    isolation: str = ""  # mps | time-slicing | cu-mask | partition; empty: the best available
    least_grade: str = ""  # empty: any


class GrantedDevice(msgspec.Struct, frozen=True):
    device: GpuDevice
    milli: int
    mib: int
    units: tuple[int, ...] = ()  # compute units of its mask; empty: no mask
    name: str = ""  # the scheduler's name: the device's id, or a longer form
    threads_milli: int = 0  # of the multiprocessors that an MPS client may use; 0: as many as its share


class Grant(msgspec.Struct, frozen=True):
    owner: str
    method: IsolationMethod
    grade: IsolationGrade
    held: tuple[GrantedDevice, ...]
    note: str = ""  # a hint for users: translated, weaker than asked for, oversubscribed
    cgroup: str = ""  # the cgroup that caps its device memory; the process must run in it
    environment: dict[str, str] = {}


class Refusal(msgspec.Struct, frozen=True):
    reason: str


class IsolationSupport(msgspec.Struct, frozen=True):
    mps_control: str = ""  # path of nvidia-cuda-mps-control; empty: not installed
    dmem_regions: tuple[str, ...] = ()  # memory regions that the kernel can cap, such as drm/0000:05:00.0/vram
    in_containers: bool = False  # pods run under a kubelet, which creates their cgroups too late to cap memory
    may_use_mps: bool = True  # False: nobody gave us the right to start MPS daemons


def devices_by_id(inventory: Inventory) -> dict[str, GpuDevice]:
    """Every device by id; a whole NVIDIA GPU also by its longer id with the UUID."""
    found: dict[str, GpuDevice] = {}
    serials = Counter(gpu.serial for gpu in inventory.gpus)
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            device = _device(gpu, part, _uuid(gpu, part, is_only=serials[gpu.serial] == 1))
            found[device.id] = device
            if part is gpu and gpu.serial.startswith("GPU-"):
                found[with_uuid(gpu.id, gpu.serial)] = device
    return found


def _uuid(gpu: PhysicalGpu, part: PhysicalGpu | Partition, is_only: bool) -> str:
    if isinstance(part, Partition):
        return part.uuid
    if gpu.vendor == "nvidia":
        return gpu.serial
    # As ROCr writes it. All partitions of a GPU may report the same number, which then identifies none of them.
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
