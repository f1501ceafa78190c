"""Who uses AMD's GPUs, from the driver's list of compute processes.

In:    /sys/class/kfd/kfd/proc, and which device each of the kernel's GPU numbers is.   Out: what each process uses.
Never: reads more than about MOST_FILES files in one look; what it does not come to keeps what the look before said.

The driver lists every GPU under every process: 4,096 entries on a node of 64 partitions with 64 processes, nearly all
of them 0. A GPU counts when the process has a queue or memory there; where it had neither is looked at again rarely.
"""

import os
from collections.abc import Mapping

from kaiwo.devices.agent_messages import ProcessUse
from kaiwo.devices.amd.sysfs_files import list_entries, numbered_entries

MOST_FILES = 500
MOST_PROCESSES = 512
FULL_READ_EVERY = 60  # looks at one process
MOST_BYTES = 64
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class KfdProcesses:
    """The processes of one machine, looked at again and again."""

    def __init__(self, folder: str, devices: Mapping[int, str], units: Mapping[str, int]) -> None:
        self.folder = folder
        self._devices = devices  # by the kernel's number
        self._units = units  # compute units of each device
        self._known: dict[int, dict[int, ProcessUse]] = {}  # by pid and the kernel's number
        self._reads: dict[int, int] = {}
        self._next_index = 0
        self._files_left = 0

    @property
    def exists(self) -> bool:
        """The driver keeps its list here: who is not on it has nothing."""
        return os.path.isdir(self.folder)

    def sample(self) -> list[ProcessUse]:
        pids = numbered_pids(self.folder)[:MOST_PROCESSES]
        self._known = {pid: self._known.get(pid, {}) for pid in pids}
        self._reads = {pid: self._reads.get(pid, 0) for pid in pids}
        self._files_left = MOST_FILES
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
            self._reads[pid] += pid % FULL_READ_EVERY  # not all of them in the same second
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
        """How many queues it has on each GPU."""
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
        """There is a file and no number in it: the process is there, and how much it has is not known."""
        return memory is None and os.path.exists(os.path.join(top, f"vram_{number}"))

    def _number(self, path: str) -> int | None:
        """A third of what the careful reader costs, and this is read hundreds of times a second."""
        self._files_left -= 1
        try:
            handle = os.open(path, FLAGS)
            try:
                data = os.read(handle, MOST_BYTES)
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


def numbered_pids(folder: str) -> list[int]:
    return sorted(int(name) for name in list_entries(folder) if name.isdecimal() and name.isascii() and len(name) < 11)
