"""What a container must be given so that it has its devices: nodes under /dev, variables, folders.

In:    a grant and the inventory.   Out: the parts of an Allocate's answer.
Never: gives a device node that the grant does not hold, or fewer devices than it holds.
"""

import os
from collections.abc import Iterator

import msgspec

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing import Grant
from kaiwo.model.errors import ClusterError

# In a container the devices are counted from 0 anew, over those that it was given.
COUNTED_OUTSIDE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
NO_NVIDIA = "void"
NVIDIA_ALWAYS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class ContainerSpec(msgspec.Struct, frozen=True):
    """Paths are the same inside and outside."""

    environment: dict[str, str]
    nodes: tuple[str, ...]
    folders: tuple[str, ...]


def container_spec(grant: Grant, inventory: Inventory, root: str = "/") -> ContainerSpec:
    environment = {name: value for name, value in grant.environment.items() if name not in COUNTED_OUTSIDE}
    uuids = [one.device.uuid for one in grant.held if one.device.vendor == "nvidia"]
    if any(gpu.vendor == "nvidia" for gpu in inventory.gpus):
        # Read by NVIDIA's container runtime. Who has AMD's GPUs sees none of the others, whatever its image says.
        environment["NVIDIA_VISIBLE_DEVICES"] = ",".join(uuids) or NO_NVIDIA
    folders = [
        environment[name] for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY") if name in environment
    ]
    there = {part.id for gpu in inventory.gpus for part in gpu.partitions or (gpu,)}
    if gone := [one.device.id for one in grant.held if one.device.id not in there]:
        raise ClusterError(f"this machine has no device {gone[0]} any more; let the pod be scheduled again")
    nodes = tuple(dict.fromkeys(_nodes(grant, inventory, root)))
    return ContainerSpec(environment, nodes, tuple(folders))


def _nodes(grant: Grant, inventory: Inventory, root: str) -> Iterator[str]:
    held = {one.device.id for one in grant.held}
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            if part.id not in held:
                continue
            if gpu.vendor == "amd":
                yield "/dev/kfd"
                yield from (f"/dev/dri/{name}" for name in (part.render, part.card) if name)
            elif gpu.vendor == "nvidia":
                yield from _nvidia_nodes(gpu.pci, root)


def _nvidia_nodes(pci: str, root: str) -> Iterator[str]:
    """The driver's own list says which number a GPU has under /dev."""
    path = os.path.join(root, "proc/driver/nvidia/gpus", pci, "information")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            minors = [line.partition(":")[2].strip() for line in file if line.startswith("Device Minor")]
    except OSError:
        return
    names = [f"nvidia{minor}" for minor in minors if minor.isdecimal()] + list(NVIDIA_ALWAYS)
    yield from (f"/dev/{name}" for name in names if os.path.exists(os.path.join(root, "dev", name)))
