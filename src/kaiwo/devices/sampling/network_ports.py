"""Sample the network ports of a machine: state, rate and traffic, from /sys/class/infiniband.

InfiniBand and RoCE adapters are there; other network cards are not. Traffic is the difference of two readings, so the
first sample has none. A counter that was reset, or that is as large as it can be, gives none either.
Never: raises because of a bad file: that port is down, or its rate is not known.
"""

import os
import re

from kaiwo.devices.agent_messages import PortSample
from kaiwo.devices.amd.sysfs_files import read_number, read_text

FOLDER = "sys/class/infiniband"
WORD_BYTES = 4  # the counters count words
MB = 1_000_000
MB_S_PER_GBIT = 125
ACTIVE = "4:"  # "4: ACTIVE"
MAX_PORTS = 64
_SATURATED = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # counters of old adapters stay there
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec")
_NUMBERS = re.compile(r"([0-9]{1,9})")


class NetworkPortSampler:
    def __init__(self, root: str = "/") -> None:
        self._folder = os.path.join(root, FOLDER)
        self._before: dict[tuple[str, int], tuple[float, int, int]] = {}  # time, words sent, words received

    def sample(self, time_s: float) -> tuple[PortSample, ...]:
        """Sorted by device, mlx5_2 before mlx5_10."""
        found: list[PortSample] = []
        for device in sorted(_entries(self._folder), key=_natural)[:MAX_PORTS]:
            ports = os.path.join(self._folder, device, "ports")
            for name in sorted(_entries(ports), key=_natural):
                if name.isdigit() and len(name) < 4 and len(found) < MAX_PORTS:
                    found.append(self._port(device, int(name), os.path.join(ports, name), time_s))
        return tuple(found)

    def _port(self, device: str, number: int, folder: str, time_s: float) -> PortSample:
        rate = _RATE.match(read_text(os.path.join(folder, "rate")))
        sent = read_number(os.path.join(folder, "counters", "port_xmit_data"))
        received = read_number(os.path.join(folder, "counters", "port_rcv_data"))
        before = self._before.pop((device, number), None)
        if sent is not None and received is not None:
            self._before[device, number] = (time_s, sent, received)
        return PortSample(
            device,
            number,
            read_text(os.path.join(folder, "state")).startswith(ACTIVE),
            int(float(rate[1]) * MB_S_PER_GBIT) if rate else 0,
            _mb_s(before, time_s, sent, 1),
            _mb_s(before, time_s, received, 2),
        )


def _mb_s(before: tuple[float, int, int] | None, time_s: float, words: int | None, at: int) -> int | None:
    if before is None or words is None or words in _SATURATED:
        return None
    elapsed_s, moved = time_s - before[0], words - int(before[at])
    return int(moved * WORD_BYTES / elapsed_s / MB) if elapsed_s > 0 and moved >= 0 else None


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(name)]
