"""Sample the processes that use AMD GPUs, from /sys/class/kfd/kfd/proc.

Never: reads more than about MAX_FILES files per sample; processes that were not reached keep their last values.

The driver lists every GPU under every process: 4,096 entries on a node of 64 partitions with 64 processes, nearly all
of them 0. A GPU counts if the process has a queue or memory there; GPUs where it had neither are read again rarely.
"""

import os
from collections.abc import Mapping

from kaiwo.devices.agent_messages import ProcessUse
from kaiwo.devices.amd.sysfs_files import list_entries, numbered_entries

MAX_FILES = 500
MAX_PROCESSES = 512
FULL_READ_EVERY = 60  # reads of one process
MAX_BYTES = 64
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class KfdProcesses:
    def __init__(self, folder: str, devices: Mapping[int, str], units: Mapping[str, int]) -> None:
        self.folder = folder
        self._devices = devices  # by KFD's gpu_id
        self._units = units  # compute units of each device
        self._known: dict[int, dict[int, ProcessUse]] = {}  # by pid and KFD's gpu_id
        self._reads: dict[int, int] = {}
        self._next_index = 0
        self._files_left = 0

    @property
    def exists(self) -> bool:
        """True if the driver has this list: a process that is not on it uses no GPU."""
        return os.path.isdir(self.folder)

    def sample(self) -> list[ProcessUse]:
        pids = numbered_entries(self.folder, most_digits=10)[:MAX_PROCESSES]
        self._known = {pid: self._known.get(pid, {}) for pid in pids}
        self._reads = {pid: self._reads.get(pid, 0) for pid in pids}
        self._files_left = MAX_FILES
        for step in range(len(pids)):
            pid = pids[(self._next_index + step) % len(pids)]
            self._known[pid] = self._read_process(pid)
            if self._files_left <= 0:
                self._next_index = (self._next_index + step + 1) % len(pids)
                break
        return [use for uses in self._known.values() for use in uses.values()]

    def _read_process(self, pid: int) -> dict[int, ProcessUse]:
        top = os.path.join(self.folder, str(pid))
        queues = self._queues(top)
        numbers = {*queues, *self._known[pid]}
        if self._reads[pid] % FULL_READ_EVERY == 0:
            numbers |= self._all_numbers(top)
            self._reads[pid] += pid % FULL_READ_EVERY  # spreads the full reads over time
        self._reads[pid] += 1
        found: dict[int, ProcessUse] = {}
        for number in sorted(numbers):
            memory = self._number(f"{top}/vram_{number}")
            if not memory and number not in queues and not self._is_unreadable(top, number, memory):
                continue
            device = self._devices[number]
            occupied = self._number(f"{top}/stats_{number}/cu_occupancy")
            memory_mib = None if memory is None or memory < 0 else memory >> 20
            found[number] = ProcessUse(pid, device, memory_mib, self._percent(device, occupied), queues.get(number, 0))
        return found

    def _queues(self, top: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for name in numbered_entries(os.path.join(top, "queues")):
            number = self._number(f"{top}/queues/{name}/gpuid")
            if number is not None and number in self._devices:
                counts[number] = counts.get(number, 0) + 1
        return counts

    def _all_numbers(self, top: str) -> set[int]:
        names = (name[5:] for name in list_entries(top) if name.startswith("vram_"))
        return {int(name) for name in names if name.isdecimal() and name.isascii() and int(name) in self._devices}

    def _is_unreadable(self, top: str, number: int, memory: int | None) -> bool:
        """True if the file exists without a number: the process uses the GPU, but how much is unknown."""
        return memory is None and os.path.exists(os.path.join(top, f"vram_{number}"))

    def _number(self, path: str) -> int | None:
        """Takes a third of the time of `read_number`; this runs hundreds of times a second."""
        self._files_left -= 1
        try:
            handle = os.open(path, FLAGS)
            try:
                data = os.read(handle, MAX_BYTES)
            finally:
                os.close(handle)
            return int(data)
        except (OSError, ValueError):
            return None

    def _percent(self, device: str, occupied: int | None) -> int | None:
        units = self._units.get(device, 0)
        if occupied is None or not units or occupied < 0:
            return None
        return min(100, round(100 * occupied / units))
