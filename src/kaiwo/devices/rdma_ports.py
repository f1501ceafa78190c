"""Read the RDMA devices of a machine and their ports, from /sys/class/infiniband.

In:    the folder that is mounted at /sys, or a copy of it.   Out: devices and ports, in the order of their numbers.
InfiniBand and RoCE adapters are there; other network cards are not. Virtual functions are left out: they belong to
containers or guests. What cannot be read is unknown, and a port whose state is unknown is not active.
"""

import os
import re
from typing import NamedTuple

from kaiwo.devices.amd.sysfs_files import list_entries, numbered_entries, read_text

CLASS = "class/infiniband"
MAX_DEVICES = 64
ACTIVE = "4:"  # "4: ACTIVE"
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,4})?) Gb/sec")
_NUMBERS = re.compile(r"([0-9]{1,9})")


class RdmaPort(NamedTuple):
    number: int
    is_active: bool
    mbit_s: int  # 0: unknown
    folder: str  # its counters are below it


def device_folder(sys: str, device: str) -> str:
    return os.path.join(sys, CLASS, device)


def rdma_devices(sys: str) -> list[str]:
    """`mlx5_10` comes after `mlx5_9`."""
    names = [name for name in list_entries(os.path.join(sys, CLASS)) if _DEVICE.fullmatch(name)]
    physical = (name for name in sorted(names, key=_natural) if not _is_virtual(device_folder(sys, name)))
    return [name for name, _ in zip(physical, range(MAX_DEVICES), strict=False)]


def rdma_ports(sys: str, device: str) -> list[RdmaPort]:
    top = os.path.join(device_folder(sys, device), "ports")
    return [_port(number, os.path.join(top, str(number))) for number in numbered_entries(top, 3)]


def _port(number: int, folder: str) -> RdmaPort:
    rate = _RATE.match(read_text(os.path.join(folder, "rate")))
    is_active = read_text(os.path.join(folder, "state")).startswith(ACTIVE)
    return RdmaPort(number, is_active, int(float(rate[1]) * 1000) if rate else 0, folder)


def _is_virtual(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "device", "physfn"))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(name)]
