"""Sample the network ports of a machine: state, rate and traffic, from /sys/class/infiniband.

Traffic is the difference of two readings, so the
first sample has none. A counter that was reset, or that is as large as it can be, gives none either.
Never: raises because of a bad file: that port is down, or its rate is not known.
"""

import os

from kaiwo.devices.agent_messages import PortSample
from kaiwo.devices.amd.sysfs_files import read_number
from kaiwo.devices.rdma_ports import RdmaPort, rdma_devices, rdma_ports

WORD_BYTES = 4  # the counters count words
MB = 1_000_000
MBIT_S_PER_MB_S = 8
MAX_PORTS = 64
_SATURATED = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # counters of old adapters stay there


class NetworkPortSampler:
    def __init__(self, root: str = "/") -> None:
        self._sys = os.path.join(root, "sys")
        self._before: dict[tuple[str, int], tuple[float, int, int]] = {}  # time, words sent, words received

    def sample(self, time_s: float) -> tuple[PortSample, ...]:
        """Sorted by device, mlx5_2 before mlx5_10."""
        ports = [(device, port) for device in rdma_devices(self._sys) for port in rdma_ports(self._sys, device)]
        return tuple(self._sample(device, port, time_s) for device, port in ports[:MAX_PORTS])

    def _sample(self, device: str, port: RdmaPort, time_s: float) -> PortSample:
        sent = read_number(os.path.join(port.folder, "counters", "port_xmit_data"))
        received = read_number(os.path.join(port.folder, "counters", "port_rcv_data"))
        before = self._before.pop((device, port.number), None)
        if sent is not None and received is not None:
            self._before[device, port.number] = (time_s, sent, received)
        return PortSample(
            device,
            port.number,
            port.is_active,
            port.mbit_s // MBIT_S_PER_MB_S,
            _mb_s(before, time_s, sent, 1),
            _mb_s(before, time_s, received, 2),
        )


def _mb_s(before: tuple[float, int, int] | None, time_s: float, words: int | None, at: int) -> int | None:
    if before is None or words is None or words in _SATURATED:
        return None
    elapsed_s, moved = time_s - before[0], words - int(before[at])
    return int(moved * WORD_BYTES / elapsed_s / MB) if elapsed_s > 0 and moved >= 0 else None
