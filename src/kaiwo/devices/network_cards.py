"""Find the network cards of a machine that collectives can use, and the GPUs next to each.

In:    a root (the live system or a copy of its /sys) and the GPUs.   Out: Nics with name, speed, NUMA node and GPUs.
A card is next to the GPUs under the lowest PCIe switch above it that has GPUs. What cannot be read is unknown.
"""

import os
from collections.abc import Sequence

from kaiwo.devices.amd.machine_paths import ADDRESS, MachinePaths
from kaiwo.devices.amd.sysfs_files import read_number
from kaiwo.devices.inventory import Nic, PhysicalGpu
from kaiwo.devices.rdma_ports import device_folder, rdma_devices, rdma_ports


def read_network_cards(paths: MachinePaths, gpus: Sequence[PhysicalGpu]) -> tuple[Nic, ...]:
    chains = {gpu.id: _chain(paths, paths.pci_folder(gpu.pci)) for gpu in gpus if gpu.pci}
    return tuple(_card(paths, name, chains) for name in rdma_devices(paths.sys))


def _card(paths: MachinePaths, name: str, chains: dict[str, tuple[str, ...]]) -> Nic:
    device = os.path.join(device_folder(paths.sys, name), "device")
    chain = _chain(paths, device)
    near: list[str] = []
    for depth in range(len(chain) - 1, 0, -1):
        near = [gpu for gpu, other in chains.items() if other[:depth] == chain[:depth]]
        if near:
            break
    numa = read_number(os.path.join(device, "numa_node"))
    pci = chain[-1] if chain else ""
    return Nic(
        name, pci, numa if numa is not None and numa >= 0 else None, _speed_mbit_s(paths, name), tuple(sorted(near))
    )


def _chain(paths: MachinePaths, folder: str) -> tuple[str, ...]:
    """The PCI addresses on the way from the CPU to a device; empty if it leads out of the root."""
    real, top = os.path.realpath(folder), os.path.realpath(paths.sys)
    if not folder or not real.startswith(top.rstrip("/") + "/"):
        return ()
    return tuple(part.lower() for part in real.split("/") if ADDRESS.fullmatch(part))


def _speed_mbit_s(paths: MachinePaths, name: str) -> int | None:
    """Of all its ports that work; of all, if none does now."""
    ports = rdma_ports(paths.sys, name)
    return sum(port.mbit_s for port in ports if port.is_active) or sum(port.mbit_s for port in ports) or None
