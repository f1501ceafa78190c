"""Build the response to Allocate from a grant: device nodes, environment variables and mounted folders.

Never: includes a device node outside the grant, or leaves out one of its devices.
"""

import os
from collections.abc import Iterator

import msgspec

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.sharing.share_types import Grant
from kaiwo.model.errors import ClusterError

# They contain indices of the host; a container numbers only the devices that it was given, from 0.
HOST_INDEX_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
NO_NVIDIA = "void"
NVIDIA_ALWAYS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class ContainerSpec(msgspec.Struct, frozen=True):
    """What a container gets; paths are the same inside and outside."""

    environment: dict[str, str]
    nodes: tuple[str, ...]
    folders: tuple[str, ...]  # read-only


def container_spec(grant: Grant, inventory: Inventory, root: str = "/", device_folder: str = "") -> ContainerSpec:
    environment = {name: value for name, value in grant.environment.items() if name not in HOST_INDEX_VARIABLES}
    uuids = [one.device.uuid for one in grant.held if one.device.vendor == "nvidia"]
    if any(gpu.vendor == "nvidia" for gpu in inventory.gpus):
        # Read by NVIDIA's container runtime: a container with AMD GPUs sees no NVIDIA GPUs, whatever its image says.
        environment["NVIDIA_VISIBLE_DEVICES"] = ",".join(uuids) or NO_NVIDIA
    environment |= nearby_hardware(grant, inventory)
    folders = [environment[name] for name in ("CUDA_MPS_PIPE_DIRECTORY",) if name in environment]
    there = {part.id for gpu in inventory.gpus for part in gpu.partitions or (gpu,)}
    if gone := [one.device.id for one in grant.held if one.device.id not in there]:
        raise ClusterError(
            f"this machine no longer has the device {gone[0]}; delete the pod to have it scheduled again"
        )
    nodes = tuple(dict.fromkeys(_nodes(grant, inventory, root, device_folder or os.path.join(root, "dev"))))
    return ContainerSpec(environment, nodes, tuple(folders))


def nearby_hardware(grant: Grant, inventory: Inventory) -> dict[str, str]:
    """The NUMA nodes and the network cards next to its GPUs, where they are known."""
    held = {one.device.id for one in grant.held}
    own = [gpu for gpu in inventory.gpus if any(part.id in held for part in gpu.partitions or (gpu,))]
    numa = sorted({gpu.numa for gpu in own if gpu.numa is not None and gpu.numa >= 0})
    cards = dict.fromkeys(nic.name for gpu in own for nic in inventory.nics if gpu.id in nic.near and nic.name)
    found = {"KAIWO_NUMA_NODES": ",".join(map(str, numa)), "KAIWO_NICS": ",".join(cards)}
    return {name: text for name, text in found.items() if text}


def _nodes(grant: Grant, inventory: Inventory, root: str, device_folder: str) -> Iterator[str]:
    held = {one.device.id for one in grant.held}
    for gpu in inventory.gpus:
        for part in gpu.partitions or (gpu,):
            if part.id not in held:
                continue
            if gpu.vendor == "amd":
                yield "/dev/kfd"
                yield from (f"/dev/dri/{name}" for name in (part.render, part.card) if name)
            elif gpu.vendor == "nvidia":
                yield from _nvidia_nodes(gpu.pci, root, device_folder)


def _nvidia_nodes(pci: str, root: str, device_folder: str) -> Iterator[str]:
    """The driver lists the minor number of each GPU. Of the nodes under /dev, those count that the machine has."""
    path = os.path.join(root, "proc/driver/nvidia/gpus", pci, "information")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            minors = [line.partition(":")[2].strip() for line in file if line.startswith("Device Minor")]
    except OSError:
        return
    names = [f"nvidia{minor}" for minor in minors if minor.isdecimal()] + list(NVIDIA_ALWAYS)
    yield from (f"/dev/{name}" for name in names if os.path.exists(os.path.join(device_folder, name)))
