"""Run the local cluster's processes: start each run, or find it again after a restart, and report what happens to it.

A run is never started twice, and never given up while it may still start: the files in its folder decide.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kaiwo.clusters.embedded.lifecycle import Exit, ExitReason
from kaiwo.clusters.local import supervisor
from kaiwo.clusters.local.cgroups import NO_CGROUPS, RunCgroups
from kaiwo.clusters.local.run_cgroup import RunCgroup
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder, RunSpec, StartRecord
from kaiwo.clusters.local.supervisor import SECRETS, boot_id, start_ticks
from kaiwo.model.errors import ClusterError, ConfigError
from kaiwo.model.gpus.gpu import Share

SCRIPT = Path(supervisor.__file__)
POLL_S = 1.0
MAX_PIDFDS = 400  # of the usual limit of 1024 open files, of which the API needs some; beyond this, ends are polled
TRIES = 3  # a supervisor may be killed before its run has begun, and then another is started
RECORD_S = 0.05  # how long to wait for a supervisor that is about to write its record
LATE_S = 5.0  # after the grace period of a run that was told to stop
OVERDUE_S = 0.2  # between two checks whether the supervisor has stopped a run at its time limit
RETRY_S = 1.0
NO_FOLDER = "its records were removed while it ran"


class RunShare(NamedTuple):
    """What isolates a run from the others on its GPUs."""

    env: dict[str, str]
    cgroup: str = ""  # to start in


class ShareProvider(Protocol):
    """Gives runs their shares of this machine's GPUs; virtual devices need none. Called from a thread."""

    def prepare(self, run_id: str, devices: Sequence[Share], isolation: str = "", least_grade: str = "") -> RunShare:
        """Call before the run starts. The same run gets the same share again. Raises OSError if there is none."""

    def grade_of(self, run_id: str) -> str:
        """How well a run is isolated; empty when it holds no share."""

    def release(self, run_id: str) -> None:
        """The run is over."""

    def keep_only(self, run_ids: Collection[str]) -> None:
        """After a restart: release the shares of all other runs."""

    def keep_alive(self) -> None:
        """Called periodically: restart the services that the shares need."""


class RunListener(NamedTuple):
    """Called on the event loop with a run's id."""

    started: Callable[[str], None]
    overdue: Callable[[str], None]
    ended: Callable[[str, Exit], None]
    refused: Callable[[str, str], None]


class ManagedRun:
    def __init__(self, folder: RunFolder, spec: RunSpec, has_begun: bool) -> None:
        self.folder, self.spec, self.has_begun = folder, spec, has_begun
        self.supervised: Supervised | None = None
        self.is_stopping = False
        self.limit_changed = asyncio.Event()


class Processes:
    """Uses one event loop. Supervisors are spawned on a thread, since a fork takes a millisecond or two."""

    def __init__(
        self,
        runs: Path,
        listener: RunListener,
        shares: ShareProvider | None = None,
        cgroups: RunCgroups = NO_CGROUPS,
        unseal: Callable[[str, Mapping[str, str]], dict[str, str]] = lambda workload, sealed: {},
    ) -> None:
        self._runs, self._listener, self._shares, self._cgroups = runs, listener, shares, cgroups
        self._unseal = unseal
        self._managed: dict[str, ManagedRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1, "kaiwo-spawn")
        self._pidfds = 0
        self._is_closing = False

    def check_shares(self, is_first: bool) -> None:
        """Keep the services running that the GPU shares of runs need; the first time, drop the shares of ended runs."""
        if self._shares is None or self._is_closing:
            return
        if is_first:
            self._thread.submit(self._shares.keep_only, [id for id, each in self._managed.items() if each.spec.devices])
        self._thread.submit(self._shares.keep_alive)

    def remove_forgotten_cgroups(self) -> None:
        """At the start, when all runs that are known have been given to `run`."""
        self._thread.submit(self._cgroups.remove_all_but, list(self._managed))

    def run(self, run_id: str, spec: RunSpec, has_begun: bool = False) -> None:
        """Start the run, or continue it in the state that its folder shows.

        `has_begun`: by the stored state it has begun, so it is not started again even if its folder was removed.
        """
        managed = self._managed[run_id] = ManagedRun(RunFolder(self._runs / run_id), spec, has_begun)
        self._tasks[run_id] = asyncio.create_task(self._manage(run_id, managed), name=f"run {run_id}")

    def stop(self, run_id: str) -> None:
        """Stop the run, or make sure that it never starts. Harmless when repeated."""
        managed = self._managed.get(run_id)
        if managed is not None:
            if not managed.is_stopping:
                late_s = managed.spec.grace_s + LATE_S
                asyncio.get_running_loop().call_later(late_s, self._kill_when_late, run_id, managed)
            managed.is_stopping = True
            if managed.supervised is not None:
                managed.supervised.stop()

    def set_time_limit(self, run_id: str, time_limit_s: float) -> None:
        """Give a run another time limit, counted from its start; 0: none."""
        managed = self._managed.get(run_id)
        if managed is None or managed.spec.time_limit_s == time_limit_s:
            return
        managed.spec = msgspec.structs.replace(managed.spec, time_limit_s=time_limit_s)
        if managed.supervised is not None:
            self._tell_limit(managed, managed.supervised)
        managed.limit_changed.set()

    def _tell_limit(self, managed: ManagedRun, supervised: "Supervised") -> None:
        """Once it has begun: until then the supervisor would not understand the signal."""
        start = managed.folder.start_record()
        if start is not None and start.takes_limit and managed.folder.set_time_limit(managed.spec.time_limit_s):
            supervised.read_limit()

    def _kill_when_late(self, run_id: str, managed: ManagedRun) -> None:
        """Its supervisor should have ended it: a run can keep its own supervisor from working, but not its cgroup."""
        if self._managed.get(run_id) is managed and not self._is_closing:
            if managed.supervised is not None:
                managed.supervised.resume()
            self._thread.submit(lambda: managed.folder.cgroup().kill())

    async def close(self) -> None:
        self._is_closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.submit(self._cgroups.remove_top)
        self._thread.shutdown()

    async def _manage(self, run_id: str, managed: ManagedRun) -> None:
        try:
            while True:
                try:
                    return await self._run_to_end(run_id, managed)
                except OSError:
                    # The disk is full, or worse: read the folder again later.
                    await asyncio.sleep(RETRY_S)
        finally:
            del self._managed[run_id], self._tasks[run_id]
            if not self._is_closing:
                self._thread.submit(self._cgroups.remove, run_id)
                if self._shares is not None and managed.spec.devices:
                    self._thread.submit(self._shares.release, run_id)

    async def _run_to_end(self, run_id: str, managed: ManagedRun) -> None:
        folder = managed.folder
        tries, why = 0, "its supervisor was killed before the command began"
        while True:
            match folder.condition():
                case RunCondition.ENDED:
                    return self._listener.ended(run_id, folder.end())
                case RunCondition.NEVER_BEGAN if managed.has_begun:
                    remains = RunCgroup(self._cgroups.folders_of(run_id))
                    while not await asyncio.to_thread(folder.kill_remains, remains):
                        await asyncio.sleep(RETRY_S)
                    return self._listener.ended(run_id, Exit(-signal.SIGKILL, ExitReason.LOST, NO_FOLDER))
                case RunCondition.LOST:
                    if not await asyncio.to_thread(folder.record_loss):
                        await asyncio.sleep(RETRY_S)
                case RunCondition.RUNNING:
                    managed.has_begun = True
                    await self._adopt(run_id, managed)
                case RunCondition.NEVER_BEGAN if not managed.is_stopping and tries < TRIES:
                    tries += 1
                    try:
                        await self._start(run_id, managed)
                    except OSError as error:
                        tries, why = TRIES, f"its process cannot be started: {error.strerror or error}"
                    except (ClusterError, ConfigError) as error:  # its secret values cannot be read
                        tries, why = TRIES, str(error)
                case RunCondition.NEVER_BEGAN if folder.seal(why) and not managed.is_stopping:
                    return self._listener.refused(run_id, why)

    async def _start(self, run_id: str, managed: ManagedRun) -> None:
        loop = asyncio.get_running_loop()
        wants_pidfd = self._pidfds < MAX_PIDFDS
        supervised, notice = await loop.run_in_executor(self._thread, self._spawn, run_id, managed, wants_pidfd)
        loop.add_reader(notice, self._read_notice, run_id, notice)
        await self._watch(run_id, managed, supervised)

    def _spawn(self, run_id: str, managed: ManagedRun, wants_pidfd: bool) -> tuple["Supervised", int]:
        spec = managed.spec
        secrets = self._unseal(spec.workload, spec.secret_env)
        if self._shares is not None and spec.devices:
            share = self._shares.prepare(run_id, spec.devices, spec.isolation, spec.least_grade)
            spec = msgspec.structs.replace(spec, env={**spec.env, **share.env}, cgroup=share.cgroup)
        groups = self._cgroups.make(run_id, spec.memory_mib, spec.cpu_milli, below=spec.cgroup)
        if spec.cgroup and any(group.startswith(f"{spec.cgroup}/") for group in groups):
            spec = msgspec.structs.replace(spec, cgroup="")  # it is inside
        spec = msgspec.structs.replace(spec, groups=groups)
        return spawn_supervisor(managed.folder, spec, wants_pidfd, secrets)

    def _read_notice(self, run_id: str, notice: int) -> None:
        asyncio.get_running_loop().remove_reader(notice)
        has_begun = bool(os.read(notice, 1))
        os.close(notice)
        if has_begun and run_id in self._managed:
            self._listener.started(run_id)

    async def _adopt(self, run_id: str, managed: ManagedRun) -> None:
        start = managed.folder.start_record()
        supervised = find_supervisor(start, self._pidfds < MAX_PIDFDS) if start is not None else None
        if supervised is None:
            await asyncio.sleep(RECORD_S)  # or it is about to end
            return
        self._listener.started(run_id)
        self._tell_limit(managed, supervised)  # it may have changed just before the last Kaiwo ended
        await self._watch(run_id, managed, supervised)

    async def _watch(self, run_id: str, managed: ManagedRun, supervised: "Supervised") -> None:
        managed.supervised = supervised
        self._pidfds += supervised.has_pidfd
        clock = asyncio.create_task(self._report_when_overdue(run_id, managed))
        try:
            if managed.is_stopping:
                supervised.stop()
            await supervised.gone()
        finally:
            clock.cancel()
            self._pidfds -= supervised.has_pidfd
            managed.supervised = None
            supervised.close()

    async def _report_when_overdue(self, run_id: str, managed: ManagedRun) -> None:
        """The supervisor counts the time, even without Kaiwo; its folder is not polled before the limit."""
        is_due = False
        while not is_due:
            managed.limit_changed.clear()
            start = managed.folder.start_record()
            ran_s = seconds_since_tick(start.ticks) if start is not None else 0.0  # the system's clock may be changed
            limit_s = managed.spec.time_limit_s
            is_due = not await _is_set_within(managed.limit_changed, max(limit_s - ran_s, 0.0) if limit_s else None)
        while not managed.folder.is_overdue():
            if managed.supervised is not None:
                managed.supervised.resume()  # the run may have stopped it
            await asyncio.sleep(OVERDUE_S)
        self._listener.overdue(run_id)


class Supervised:
    """A supervisor process. Without a pidfd (no file descriptors left) its end is polled."""

    def __init__(self, pid: int, ticks: int, pidfd: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._ticks, self._pidfd, self._process = ticks, pidfd, process

    @property
    def has_pidfd(self) -> bool:
        return self._pidfd >= 0

    async def gone(self) -> None:
        if self._pidfd >= 0:
            await _readable(self._pidfd)
        while is_alive(self.pid, self._ticks):
            await asyncio.sleep(POLL_S if self._pidfd < 0 else 0)

    def stop(self) -> None:
        """Ask it to stop its command. Harmless when repeated, or when it has ended."""
        self._send(signal.SIGTERM)

    def read_limit(self) -> None:
        """Let it read its new time limit."""
        self._send(signal.SIGUSR1)

    def resume(self) -> None:
        """Let it go on if some other process has stopped it."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._process is not None:
                self._process.send_signal(number)
            elif is_alive(self.pid, self._ticks):
                os.kill(self.pid, number)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # it is meant to outlive us: keep Popen from warning
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


async def _is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def spawn_supervisor(
    folder: RunFolder, spec: RunSpec, wants_pidfd: bool, secrets: Mapping[str, str] | None = None
) -> tuple[Supervised, int]:
    """Start a supervisor for a run; also returns the descriptor on which it reports that the run has begun.

    `secrets`: variables for the command alone. They are handed over in memory, and never written to a file.
    """
    folder.prepare(spec)
    environ = {**os.environ, SECRETS: json.dumps(dict(secrets))} if secrets else None
    notice, notice_write = os.pipe()
    try:
        (folder.path / "supervisor.log").touch(mode=0o600)
        with (folder.path / "supervisor.log").open("ab") as log:
            # -I -S: nothing of the user's Python reaches it, and it starts in about 20 ms.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", SCRIPT, folder.path, str(notice_write)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environ,
                pass_fds=(notice_write,),
                start_new_session=True,
            )
    except BaseException:
        os.close(notice)
        raise
    finally:
        os.close(notice_write)
    pid = process.pid
    return Supervised(pid, start_ticks(pid), _open_pidfd(pid) if wants_pidfd else -1, process), notice


def find_supervisor(start: StartRecord, wants_pidfd: bool) -> Supervised | None:
    """The supervisor that wrote this start record; None when it has ended."""
    pid, ticks = start.supervisor, start.supervisor_ticks
    pidfd = _open_pidfd(pid) if wants_pidfd else -1  # before the check: a pidfd stays with its process
    if start.boot == boot_id() and is_alive(pid, ticks):
        return Supervised(pid, ticks, pidfd)
    if pidfd >= 0:
        os.close(pidfd)
    return None


def is_alive(pid: int, ticks: int) -> bool:
    """Whether the process that started at that tick exists and is not a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0] != b"Z" and int(fields[19]) == ticks
    except (OSError, IndexError):
        return False


def seconds_since_tick(started_ticks: int) -> float:
    """How long ago a process of this boot began, by the time that the kernel keeps for it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


async def _readable(fd: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
