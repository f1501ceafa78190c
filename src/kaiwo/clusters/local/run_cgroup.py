"""The cgroups of one run: enter them, end everything in them, and read what they measured.

In:    the run's folders: one in cgroup v2, one for each hierarchy in v1.
Never: imports more than a little of the standard library: the supervisor loads this file by its path.

A process can leave its session, its parent and its environment, but its children stay in its cgroup.
"""

import contextlib
import os
import signal
import time

MIB = 1 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 1.0


class RunCgroup:
    """All methods are harmless when the folders do not exist. Without folders there is nothing to confine."""

    def __init__(self, folders) -> None:
        self.folders = tuple(folders)

    def enter(self) -> None:
        """Move this process there."""
        for folder in self.folders:
            with open(os.path.join(folder, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))

    def kill(self) -> None:
        """Kill every process in them, with what they start meanwhile where the kernel can do that."""
        signalled = [folder for folder in self.folders if not write(folder, "cgroup.kill", "1")]
        for folder in signalled:
            for each in tree(folder):
                write(each, "pids.max", "0")  # so that none of them can fork any more
        for pid in {pid for folder in signalled for pid in processes(folder)}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def is_empty(self) -> bool:
        return not any(is_populated(folder) for folder in self.folders)

    def end_all(self, longest_s: float = float("inf")) -> bool:
        """Kill until nothing is left. A process that hangs in a driver can take very long to die; False: it still
        exists after that time."""
        deadline, pause_s = time.monotonic() + longest_s, FIRST_PAUSE_S
        while not self.is_empty():
            if time.monotonic() > deadline:
                return False
            self.kill()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return True

    @property
    def ends_as_a_whole(self) -> bool:
        """The kernel itself ends the whole run when it is out of memory (cgroup v2)."""
        return any(read(folder, "memory.oom.group").strip() == "1" for folder in self.folders)

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed because no memory was left."""
        texts = [read(folder, name) for folder in self.folders for name in ("memory.events", "memory.oom_control")]
        counts = [line.split()[1] for text in texts for line in text.splitlines() if line.startswith("oom_kill ")]
        return max(map(int, counts), default=0)

    def peak_mib(self) -> int:
        """The most memory that it used at one time, rounded up; 0: the kernel does not say."""
        names = ("memory.peak", "memory.max_usage_in_bytes")
        texts = [read(folder, name).strip() for folder in self.folders for name in names]
        peak = max((int(text) for text in texts if text.isdecimal()), default=0)
        return (peak + MIB - 1) // MIB

    def cpu_us(self):
        """The processor time that it has used; None: the kernel does not say."""
        for folder in self.folders:
            for line in read(folder, "cpu.stat").splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1])
            if (used_ns := read(folder, "cpuacct.usage").strip()).isdecimal():
                return int(used_ns) // 1000
        return None

    def stalled_us(self):
        """For how long something in it waited for a processor; 0: it did not, or the kernel does not say."""
        for folder in self.folders:
            for line in read(folder, "cpu.pressure").splitlines():
                if line.startswith("some "):
                    return int(line.rpartition("total=")[2])
        return 0

    def memory_mib(self):
        """The memory that it uses now, without files that the kernel can drop; None: the kernel does not say."""
        for folder in self.folders:
            used = read(folder, "memory.current").strip() or read(folder, "memory.usage_in_bytes").strip()
            if used.isdecimal():
                lines = [line.split() for line in read(folder, "memory.stat").splitlines()]
                files = next((int(each[1]) for each in lines if each[0] == "inactive_file"), 0)
                return (max(0, int(used) - files) + MIB - 1) // MIB
        return None

    def remove(self) -> bool:
        """Remove the folders; one that still has processes stays. Returns whether all are gone."""
        for folder in self.folders:
            for each in reversed(list(tree(folder))):
                with contextlib.suppress(OSError):
                    os.rmdir(each)
        return not any(os.path.exists(folder) for folder in self.folders)


def tree(folder):
    """The folder and all below it, parents first: a run may have made cgroups of its own."""
    if not os.path.isdir(folder):
        return
    yield folder
    with os.scandir(folder) as entries:
        below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for each in below:
        yield from tree(each)


def processes(folder):
    return {int(pid) for each in tree(folder) for pid in read(each, "cgroup.procs").split()}


def is_populated(folder) -> bool:
    events = read(folder, "cgroup.events")
    return "populated 1" in events if events else bool(processes(folder))


def read(folder, name) -> str:
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read()
    except OSError:
        return ""


def write(folder, name, text) -> bool:
    """False: there is no such file, or it cannot be written."""
    try:
        fd = os.open(os.path.join(folder, name), os.O_WRONLY)  # not `open`: it would create one
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
