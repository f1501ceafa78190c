"""Find the network cards of a machine that collectives can use, and the GPUs next to each.

In:    a root (the live system or a copy of its /sys) and the GPUs.   Out: Nics with name, speed, NUMA node and GPUs.
A card is next to the GPUs under the lowest PCIe switch above it that has GPUs. Virtual functions are left out: they
belong to containers or guests. What cannot be read is unknown.
"""

import os
import re
from collections.abc import Sequence

from kaiwo.devices.amd.machine_paths import ADDRESS, MachinePaths
from kaiwo.devices.amd.sysfs_files import list_entries, read_number, read_text
from kaiwo.devices.inventory import Nic, PhysicalGpu

CARDS = "class/infiniband"  # RDMA over InfiniBand and over Ethernet
MAX_CARDS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9])?) Gb/sec")


def read_network_cards(paths: MachinePaths, gpus: Sequence[PhysicalGpu]) -> tuple[Nic, ...]:
    top = os.path.join(paths.sys, CARDS)
    chains = {gpu.id: _chain(paths, paths.pci_folder(gpu.pci)) for gpu in gpus if gpu.pci}
    names = [name for name in list_entries(top) if _NAME.fullmatch(name)]
    found = [_card(paths, os.path.join(top, name), name, chains) for name in sorted(names, key=_numbered)[:MAX_CARDS]]
    return tuple(card for card in found if card is not None)


def _card(paths: MachinePaths, folder: str, name: str, chains: dict[str, tuple[str, ...]]) -> Nic | None:
    device = os.path.join(folder, "device")
    if os.path.lexists(os.path.join(device, "physfn")):
        return None
    chain = _chain(paths, device)
    near: list[str] = []
    for depth in range(len(chain) - 1, 0, -1):
        near = [gpu for gpu, other in chains.items() if other[:depth] == chain[:depth]]
        if near:
            break
    numa = read_number(os.path.join(device, "numa_node"))
    pci = chain[-1] if chain else ""
    return Nic(name, pci, numa if numa is not None and numa >= 0 else None, _speed_mbit_s(folder), tuple(sorted(near)))


def _chain(paths: MachinePaths, folder: str) -> tuple[str, ...]:
    """The PCI addresses on the way from the CPU to a device; empty if it leads out of the root."""
    real, top = os.path.realpath(folder), os.path.realpath(paths.sys)
    if not folder or not real.startswith(top.rstrip("/") + "/"):
        return ()
    return tuple(part.lower() for part in real.split("/") if ADDRESS.fullmatch(part))


def _speed_mbit_s(folder: str) -> int | None:
    """Of all its ports."""
    rates = [
        found[1]
        for port in list_entries(os.path.join(folder, "ports"))
        if (found := _RATE.match(read_text(os.path.join(folder, "ports", port, "rate"))))
    ]
    return sum(int(float(rate) * 1000) for rate in rates) or None


def _numbered(name: str) -> tuple[str, int]:
    """`mlx5_10` after `mlx5_9`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
