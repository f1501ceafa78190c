"""Describe this machine as a node, with the GPUs that discovery found.

The devices keep the order in which their vendor's runtime counts them: the visible-devices variables depend on it.
"""

import os
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from kaiwo.clusters.local.cluster_file import HOST_LABEL, MODEL_LABEL
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, Link, Partition, PhysicalGpu
from kaiwo.devices.sharing.isolation_method import share_grade
from kaiwo.devices.sharing.prepare_grants import detect_isolation_support
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.devices.sharing.share_types import devices_by_id as sharing_devices
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Gpu, with_uuid
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, partition_count, partition_milli
from kaiwo.model.node import DeviceLinks, Node

MEMINFO = "/proc/meminfo"
WITHIN_MB_S = 10**6  # between partitions of one GPU
DEFAULT_MB_S = {"nvlink": 25_000, "xgmi": 50_000, "pcie": 16_000}  # of one link, where the driver reports no bandwidth


def real_node(root: str = "/") -> Node | None:
    """This machine as a node; None if it has no usable GPU."""
    return node_of(discover(root, has_telemetry=False))


def node_of(inventory: Inventory, platform: IsolationSupport | None = None) -> Node | None:
    gpus = devices_of(inventory, platform or detect_isolation_support())
    if not gpus:
        return None
    return Node(
        name=inventory.node,
        cpu_milli=1000 * len(os.sched_getaffinity(0)),
        memory_mib=memory_mib(),
        gpus=gpus,
        wiring=wiring_of(inventory, gpus),
        labels={HOST_LABEL: inventory.node, MODEL_LABEL: Counter(gpu.model for gpu in gpus).most_common(1)[0][0]},
    )


def devices_of(inventory: Inventory, platform: IsolationSupport | None = None) -> tuple[Gpu, ...]:
    """The devices by vendor, then in the order of the vendor's runtime; those that it does not number come last.

    `platform`: how the machine can isolate shares; without it the devices have no share grade.
    """
    has_mig = any(gpu.compute_mode == "MIG" for gpu in inventory.gpus)
    vendors = list(dict.fromkeys(gpu.vendor for gpu in inventory.gpus))
    found: list[tuple[tuple[int, int], Gpu]] = []
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            rank = len(found) + 1_000_000 if part.order is None else part.order
            found.append(((vendors.index(gpu.vendor), rank), _device(gpu, part, has_mig)))
    devices = tuple(device for _, device in sorted(found, key=lambda pair: pair[0]))
    if platform is None:
        return devices
    known = sharing_devices(inventory)
    return tuple(
        replace(gpu, share_grade=share_grade(known[gpu.id], platform)) if gpu.id in known else gpu for gpu in devices
    )


def memory_mib() -> int:
    with open(MEMINFO, encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    return 0


def _device(gpu: PhysicalGpu, part: PhysicalGpu | Partition, has_mig: bool) -> Gpu:
    # Beside partitioned GPUs, CUDA numbers whole ones differently from NVML: the id then contains the UUID.
    name = with_uuid(part.id, gpu.serial) if has_mig and part is gpu and gpu.serial.startswith("GPU-") else part.id
    is_healthy = part.health == "healthy" and gpu.health != "failed"
    reason = "" if is_healthy else part.reason or gpu.reason
    vendor = "" if gpu.model in GPU_MODELS else gpu.vendor
    if isinstance(part, PhysicalGpu):
        return Gpu(name, gpu.model, part.memory_mib, is_healthy, reason, vendor=vendor)
    profile = part.profile or Mode(gpu.compute_mode, gpu.memory_mode).profile or "cut"
    milli = _milli(gpu, part)
    return Gpu(name, gpu.model, part.memory_mib, is_healthy, reason, gpu.id, profile, milli, vendor=vendor)


def _milli(gpu: PhysicalGpu, part: Partition) -> int:
    """Its part of the GPU: by its index among the partitions that the mode makes, else by its compute units."""
    count = partition_count(gpu.model, gpu.compute_mode)
    if count > 1 and 0 <= part.index < count:
        return partition_milli(part.index, count)
    if 0 < part.compute_units <= gpu.compute_units:
        return max(1, WHOLE_MILLI * part.compute_units // gpu.compute_units)
    return WHOLE_MILLI // max(1, len(gpu.partitions))


def wiring_of(inventory: Inventory, devices: Sequence[Gpu]) -> DeviceLinks:
    """How the devices are connected; empty when nothing is known. Partitions of one GPU are nearest."""
    gpus = {gpu.id: gpu for gpu in inventory.gpus}
    owners = [gpus.get(device.parent or device.id) for device in devices]
    is_known = inventory.nics or any(gpu.links or gpu.numa is not None for gpu in inventory.gpus)
    if any(owner is None for owner in owners) or not is_known:
        return DeviceLinks()
    found = [owner for owner in owners if owner is not None]
    speeds = {(gpu.id, link.to): _link_mb_s(link) for gpu in found for link in gpu.links}
    mb_s = tuple(tuple(WITHIN_MB_S if a is b else speeds.get((a.id, b.id), 0) for b in found) for a in found)
    near = {gpu: number for number, nic in enumerate(inventory.nics) for gpu in nic.near}
    numa = tuple(-1 if gpu.numa is None else gpu.numa for gpu in found)
    total = tuple(max((_link_mb_s(link) for link in gpu.links if link.is_switched), default=0) for gpu in found)
    return DeviceLinks(
        mb_s,
        numa,
        tuple(near.get(gpu.id, -1) for gpu in found),
        tuple(nic.name for nic in inventory.nics),
        total if any(total) else (),
    )


def _link_mb_s(link: Link) -> int:
    return link.bandwidth_mb_s or DEFAULT_MB_S.get(link.kind, 1) * max(1, link.count or 1)
