"""Give each run of this machine its own cgroup, and with it limits that hold, where the machine allows it.

In:    the place that `cgroup_place` found.   Out: the folders of each run: `kaiwo/HOME/RUN` below that place.
Never: moves a process that is not Kaiwo's own, or changes a cgroup that it did not create, apart from enabling
       controllers for its children. It reads and writes files: call it at the start, or on a thread.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kaiwo.clusters.embedded.lifecycle import PlacedRun
from kaiwo.clusters.local.cgroup_place import USE_SYSTEMD, Hierarchy, choose_place, descends_from
from kaiwo.clusters.local.run_cgroup import RunCgroup, processes, read
from kaiwo.clusters.protocol import PodUse

OURS, MAIN = "kaiwo", "kaiwo-main"
MOST_STALLED_PERCENT = 10  # of the time: a run that waits longer for processors does not show its need
CLEAN_S = 5.0  # how long the processes of a forgotten run may take to die at the start
FEWEST_PROCESSES, MOST_PROCESSES = 1024, 32_768  # the default limit of one run; threads count


class RunCgroups:
    """The cgroups of all runs of one home folder. Without hierarchies, runs are not confined."""

    def __init__(
        self,
        hierarchies: Sequence[Hierarchy] = (),
        key: str = "",
        max_processes: int = 0,
        promise: str = "this Kaiwo does not use cgroups",
        remedy: str = "",
    ) -> None:
        """`promise`: why --memory is not a limit here; empty: it is one. `max_processes`: of one run; 0: any number."""
        self.hierarchies, self._key, self._max_processes = tuple(hierarchies), key, max_processes
        self.promise, self.remedy = promise, remedy

    def folders_of(self, run_id: str) -> tuple[str, ...]:
        return tuple(os.path.join(each.base, OURS, self._key, run_id) for each in self.hierarchies)

    def make(self, run_id: str, memory_mib: int, cpu_milli: int, below: str = "") -> tuple[str, ...]:
        """Make the cgroups of a run, and set its limits; 0: none. Raises OSError.

        `below`: a cgroup of v2 that limits the GPU memory of the run, and must contain it.
        """
        folders = []
        for hierarchy in self.hierarchies:
            top = below if below and hierarchy.is_unified else os.path.join(hierarchy.base, OURS, self._key)
            folder = os.path.join(top, run_id)
            try:
                os.mkdir(folder)
            except FileExistsError:
                pass  # of an earlier try to start it
            except FileNotFoundError:  # somebody has tidied up
                _make_top(hierarchy, top)
                os.mkdir(folder)
            if top == below:
                _enable(os.path.dirname(below), hierarchy.controllers)
                _enable(below, hierarchy.controllers)
            for name, value, is_needed in self._settings(hierarchy, memory_mib, cpu_milli):
                try:
                    _write(folder, name, value)
                except OSError:
                    if is_needed:
                        raise
            folders.append(folder)
        return tuple(folders)

    def remove(self, run_id: str) -> None:
        """The run is over: normally its supervisor has removed them."""
        RunCgroup(self.folders_of(run_id)).remove()

    def remove_top(self) -> None:
        """At the end: an empty folder tells nobody anything. One with runs stays, since they outlive Kaiwo."""
        for hierarchy in self.hierarchies:
            top = os.path.join(hierarchy.base, OURS, self._key)
            for folder in (top, os.path.dirname(top)):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def remove_all_but(self, run_ids: Collection[str]) -> None:
        """At the start: end and remove what runs that nobody knows any more left behind."""
        for hierarchy in self.hierarchies:
            top = os.path.join(hierarchy.base, OURS, self._key)
            with contextlib.suppress(OSError):
                for name in sorted(set(os.listdir(top)) - set(run_ids)):
                    if os.path.isdir(os.path.join(top, name)):
                        left = RunCgroup([os.path.join(top, name)])
                        left.end_all(CLEAN_S)
                        left.remove()

    def _settings(self, hierarchy: Hierarchy, memory_mib: int, cpu_milli: int) -> Iterator[tuple[str, str, bool]]:
        """Files, what to write there, and whether the run must not start without it."""
        limit = str(memory_mib << 20)
        if "memory" in hierarchy.controllers and hierarchy.is_unified:
            yield "memory.oom.group", "1", False
            if memory_mib:
                yield "memory.swap.max", "0", False  # not every kernel counts swap
                yield "memory.max", limit, True
        elif "memory" in hierarchy.controllers and memory_mib:
            yield "memory.limit_in_bytes", limit, True
            yield "memory.memsw.limit_in_bytes", limit, False
        if "pids" in hierarchy.controllers and self._max_processes:
            yield "pids.max", str(self._max_processes), True
        if "cpu" in hierarchy.controllers and cpu_milli:
            if hierarchy.is_unified:
                yield "cpu.weight", str(min(max(cpu_milli // 10, 1), 10_000)), False  # one CPU: 100, as without any
            else:
                yield "cpu.shares", str(min(max(cpu_milli * 1024 // 1000, 2), 262_144)), False


NO_CGROUPS = RunCgroups()


def find_cgroups(home: str, max_processes: int = -1, proc: str = "/proc") -> RunCgroups:
    """Prepare the cgroups below which the runs of this home folder get theirs. `max_processes`: -1 for the default."""
    choice = choose_place(proc)
    key = hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:12]
    usable, why = [], choice.why_not
    try:
        if choice.must_move:
            _move_own_processes(choice.hierarchies[0].base, proc)
    except OSError as error:
        return RunCgroups(promise=f"Kaiwo cannot leave its own cgroup ({error.strerror})", remedy=USE_SYSTEMD)
    for hierarchy in choice.hierarchies:
        try:
            usable.append(_make_top(hierarchy, os.path.join(hierarchy.base, OURS, key)))
        except OSError as error:
            why = why or f"{error.filename or hierarchy.base} cannot be used ({error.strerror})"
    if any("memory" in each.controllers for each in usable):
        why = ""
    elif usable:
        why = why or "the kernel's memory controller is not available to Kaiwo"
    limit = default_max_processes(proc) if max_processes < 0 else max_processes
    return RunCgroups(usable, key, limit, why, choice.remedy if why else "")


def default_max_processes(proc: str = "/proc") -> int:
    """A quarter of what the machine has room for: a fork bomb leaves the others alone, and no real work notices."""
    found = [read(os.path.join(proc, "sys/kernel"), name).strip() for name in ("pid_max", "threads-max")]
    least = min((int(text) for text in found if text.isdecimal()), default=MOST_PROCESSES)
    return min(max(least // 4, FEWEST_PROCESSES), MOST_PROCESSES)


def _move_own_processes(base: str, proc: str) -> None:
    """Only a cgroup without processes can have children with limits."""
    folder = os.path.join(base, MAIN)
    os.makedirs(folder, exist_ok=True)
    for pid in sorted(processes(base) - processes(folder)):
        if descends_from(pid, os.getpid(), proc):
            with contextlib.suppress(ProcessLookupError):
                _write(folder, "cgroup.procs", str(pid))


def _make_top(hierarchy: Hierarchy, top: str) -> Hierarchy:
    """Make the folder that will have the runs' own, with its controllers. Returns those that work."""
    os.makedirs(top, exist_ok=True)
    if not hierarchy.is_unified:
        with contextlib.suppress(OSError):  # old kernels; newer ones always count what is below
            _write(top, "memory.use_hierarchy", "1")
        return hierarchy
    working = hierarchy.controllers
    for folder in (hierarchy.base, os.path.dirname(top), top):
        working = _enable(folder, working)
    return hierarchy._replace(controllers=working)


def _enable(folder: str, controllers: Sequence[str]) -> tuple[str, ...]:
    """Let the children of a cgroup of v2 have these controllers. Returns those that they have."""
    enabled = set(read(folder, "cgroup.subtree_control").split())
    for name in controllers:
        if name not in enabled:
            with contextlib.suppress(OSError):
                _write(folder, "cgroup.subtree_control", f"+{name}")
    enabled = set(read(folder, "cgroup.subtree_control").split())
    return tuple(each for each in controllers if each in enabled)


def _write(folder: str, name: str, text: str) -> None:
    path = os.path.join(folder, name)
    fd = os.open(path, os.O_WRONLY)  # not `open`: it would create a file
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror, path) from None
    finally:
        os.close(fd)


class ProcessorTime(NamedTuple):
    """What one run has had by now."""

    at: float
    used_us: int
    stalled_us: int  # it waited for a processor


def _cpu_milli(before: ProcessorTime | None, now: ProcessorTime) -> int | None:
    """None: not known, or it had to wait for processors, so that it may have needed more than it got."""
    if before is None or now.at <= before.at:
        return None
    span_us = (now.at - before.at) * 1_000_000
    if (now.stalled_us - before.stalled_us) * 100 > span_us * MOST_STALLED_PERCENT:
        return None
    return max(0, round((now.used_us - before.used_us) * 1000 / span_us))


class RunUseMeter:
    """What runs use of the machine, by the cgroups that they have. Implements PodUses."""

    def __init__(self, cgroup_of: Callable[[str], RunCgroup], runs: Callable[[], Iterable[PlacedRun]]) -> None:
        self._cgroup_of, self._runs = cgroup_of, runs
        self._known: dict[str, RunCgroup] = {}
        self._last: dict[str, ProcessorTime] = {}  # by run

    async def measure(self) -> Mapping[tuple[str, str], PodUse]:
        placed = [(each.run.id, (each.pod.workload, each.pod.name)) for each in self._runs() if each.run.is_process]
        return await asyncio.to_thread(self._measure, placed) if placed else {}

    def _measure(self, placed: Sequence[tuple[str, tuple[str, str]]]) -> dict[tuple[str, str], PodUse]:
        found: dict[tuple[str, str], PodUse] = {}
        last: dict[str, ProcessorTime] = {}
        # A run that has no cgroup yet is looked at again.
        known = {run_id: self._known.get(run_id) or self._cgroup_of(run_id) for run_id, _ in placed}
        self._known = {run_id: cgroup for run_id, cgroup in known.items() if cgroup.folders}
        for run_id, key in placed:
            cgroup, cpu_milli = known[run_id], None
            memory_mib, cpu_us = cgroup.memory_mib(), cgroup.cpu_us()
            if cpu_us is not None:
                last[run_id] = ProcessorTime(time.monotonic(), cpu_us, cgroup.stalled_us())
                cpu_milli = _cpu_milli(self._last.get(run_id), last[run_id])
            if cpu_milli is not None or memory_mib is not None:
                found[key] = PodUse(cpu_milli, memory_mib)
        self._last = last
        return found
