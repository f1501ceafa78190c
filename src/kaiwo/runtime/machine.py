"""This machine as a node, with the GPUs it really has.

In:    what discovery found.   Out: a node, or None without a GPU.
Never: changes the order in which the vendors' runtimes count their devices: the visible-devices variables name them so.
"""

import os
from collections import Counter

from kaiwo.clusters.local.cluster_file import HOST_LABEL, MODEL_LABEL
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import Node

MEMINFO = "/proc/meminfo"


def real_node() -> Node | None:
    """A node for this machine; None when it has no GPU that we can use."""
    return node_of(discover(has_telemetry=False))


def node_of(inventory: Inventory) -> Node | None:
    """Every GPU, or each of its partitions, is one device."""
    gpus = devices_of(inventory)
    if not gpus:
        return None
    return Node(
        name=inventory.node,
        cpu_milli=1000 * len(os.sched_getaffinity(0)),
        memory_mib=memory_mib(),
        gpus=gpus,
        labels={HOST_LABEL: inventory.node, MODEL_LABEL: Counter(gpu.model for gpu in gpus).most_common(1)[0][0]},
    )


def devices_of(inventory: Inventory) -> tuple[Gpu, ...]:
    """By vendor, then as the vendor's runtime counts; those it does not count come last."""
    has_mig = any(gpu.compute_mode == "MIG" for gpu in inventory.gpus)
    vendors = list(dict.fromkeys(gpu.vendor for gpu in inventory.gpus))
    found: list[tuple[tuple[int, int], Gpu]] = []
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            rank = len(found) + 1_000_000 if part.order is None else part.order
            found.append(((vendors.index(gpu.vendor), rank), _device(gpu, part, has_mig)))
    return tuple(device for _, device in sorted(found, key=lambda pair: pair[0]))


def memory_mib() -> int:
    """What this machine has in all."""
    with open(MEMINFO, encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    return 0


def _device(gpu: PhysicalGpu, part: PhysicalGpu | Partition, has_mig: bool) -> Gpu:
    # CUDA does not count whole devices beside cut ones as NVML does: the id then carries the UUID.
    name = f"{part.id}-{gpu.serial}" if has_mig and part is gpu and gpu.serial.startswith("GPU-") else part.id
    is_healthy = part.health == "healthy" and gpu.health != "failed"
    reason = "" if is_healthy else part.reason or gpu.reason
    return Gpu(name, gpu.model, part.memory_mib, is_healthy, reason)
