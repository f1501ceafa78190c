"""All local processes: one task a run, from its beginning, or from where a former Kaiwo left it, to its end.

In:    runs to begin or to find again, and runs to stop.   Out: what became of them, told on the event loop.
Never: begins a run twice, or lets go of one that may still begin. The run's folder has the last word.

Also: A supervisor process as Kaiwo sees it: hear of its end, tell it to stop.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from kaiwo.clusters.embedded.lifecycle import Exit, ExitReason
from kaiwo.clusters.local import supervisor
from kaiwo.clusters.local.run_folder import Condition, RunFolder, RunSpec, StartRecord
from kaiwo.clusters.local.share_provider import Shares
from kaiwo.clusters.local.supervisor import boot_id, start_ticks

SCRIPT = Path(supervisor.__file__)
POLL_S = 1.0


class Supervised:
    """One supervisor. Without a pidfd (no file descriptors left) its end is looked for now and then."""

    def __init__(self, pid: int, ticks: int, pidfd: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._ticks = ticks
        self._process = process
        self._pidfd = pidfd

    @property
    def has_pidfd(self) -> bool:
        """Its end is told, not looked for."""
        return self._pidfd >= 0

    async def gone(self) -> None:
        """Until it has ended."""
        if self._pidfd >= 0:
            await _readable(self._pidfd)
        while is_alive(self.pid, self._ticks):
            await asyncio.sleep(POLL_S if self._pidfd < 0 else 0)

    def stop(self) -> None:
        """Let it stop its command; harmless when it is gone or was told before."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            elif self._process is not None:
                self._process.send_signal(signal.SIGTERM)
            elif is_alive(self.pid, self._ticks):
                os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """Look after it no longer. It goes on."""
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # it is meant to outlive us: Popen shall not warn about that
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def spawn(folder: RunFolder, spec: RunSpec, wants_pidfd: bool) -> tuple[Supervised, int]:
    """Start a supervisor for a run; also gives the file descriptor on which it says that the run has begun."""
    folder.prepare(spec)
    notice, notice_write = os.pipe()
    try:
        with (folder.path / "supervisor.log").open("ab") as log:
            # -I -S: nothing of the user's Python reaches it, and it starts in some 20 ms.
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", SCRIPT, folder.path, str(notice_write)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
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


def find(start: StartRecord, wants_pidfd: bool) -> Supervised | None:
    """The supervisor that wrote this start record; None when it is gone."""
    pid, ticks = start.supervisor, start.supervisor_ticks
    pidfd = _open_pidfd(pid) if wants_pidfd else -1  # first the pidfd, then the check: it stays with that process
    if start.boot == boot_id() and is_alive(pid, ticks):
        return Supervised(pid, ticks, pidfd)
    if pidfd >= 0:
        os.close(pidfd)
    return None


def is_alive(pid: int, ticks: int) -> bool:
    """The process that began at that tick is still there, and not only as a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0] != b"Z" and int(fields[19]) == ticks
    except (OSError, IndexError):
        return False


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, tell)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


MOST_PIDFDS = 400  # 1024 open files are the usual limit, and the API needs some; beyond this, ends are looked for
TRIES = 3  # a supervisor may be killed before its run has begun, and then another is started
LOOK_AGAIN_S = 0.05
OVERDUE_S = 0.2  # how often it is looked whether a run whose time is up was told so
TROUBLE_S = 1.0
NO_FOLDER = "its records were removed while it ran"


class Tell(NamedTuple):
    """Whom to tell what becomes of a run."""

    started: Callable[[str], None]
    overdue: Callable[[str], None]
    ended: Callable[[str, Exit], None]
    refused: Callable[[str, str], None]


class Tended:
    """One run that goes on."""

    def __init__(self, folder: RunFolder, spec: RunSpec, has_begun: bool) -> None:
        self.folder = folder
        self.spec = spec
        self.has_begun = has_begun
        self.supervised: Supervised | None = None
        self.is_stopping = False


class Processes:
    """Lives on one event loop. Spawning happens on a thread, since a fork takes a millisecond or two."""

    def __init__(self, runs: Path, tell: Tell, shares: Shares | None = None) -> None:
        self._runs = runs
        self._tell = tell
        self._shares = shares
        self._tended: dict[str, Tended] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._thread = ThreadPoolExecutor(1, "kaiwo-spawn")
        self._pidfds = 0
        self._is_closing = False

    def look_after_shares(self, is_first: bool) -> None:
        """Keep what the runs' parts of the devices stand on alive; the first time, drop those of runs that are over."""
        if self._shares is None or self._is_closing:
            return
        if is_first:
            self._thread.submit(self._shares.keep_only, [id for id, each in self._tended.items() if each.spec.devices])
        self._thread.submit(self._shares.tend)

    def tend(self, run_id: str, spec: RunSpec, has_begun: bool = False) -> None:
        """Begin the run, unless its folder says that it has begun: then go on from there.

        `has_begun`: the store knows that it did, so that it is not begun again even if somebody removed its folder.
        """
        tended = self._tended[run_id] = Tended(RunFolder(self._runs / run_id), spec, has_begun)
        self._tasks[run_id] = asyncio.create_task(self._tend(run_id, tended), name=f"run {run_id}")

    def stop(self, run_id: str) -> None:
        """Stop the run, or see to it that it never begins. Harmless when repeated."""
        tended = self._tended.get(run_id)
        if tended is not None:
            tended.is_stopping = True
            if tended.supervised is not None:
                tended.supervised.stop()

    async def close(self) -> None:
        """Look after the runs no longer. They go on."""
        self._is_closing = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown()

    async def _tend(self, run_id: str, tended: Tended) -> None:
        try:
            while True:
                try:
                    return await self._to_the_end(run_id, tended)
                except OSError:
                    # The disk is full, or worse. The folder still has the last word: look again, later.
                    await asyncio.sleep(TROUBLE_S)
        finally:
            del self._tended[run_id], self._tasks[run_id]
            if self._shares is not None and tended.spec.devices and not self._is_closing:
                self._thread.submit(self._shares.release, run_id)

    async def _to_the_end(self, run_id: str, tended: Tended) -> None:
        folder = tended.folder
        tries, why = 0, "its supervisor was killed before the command began"
        while True:
            match folder.look():
                case Condition.ENDED:
                    return self._tell.ended(run_id, folder.end())
                case Condition.NEVER_BEGAN if tended.has_begun:
                    await asyncio.to_thread(folder.kill_remains)
                    return self._tell.ended(run_id, Exit(-signal.SIGKILL, ExitReason.LOST, NO_FOLDER))
                case Condition.LOST:
                    await asyncio.to_thread(folder.bury)
                case Condition.RUNNING:
                    tended.has_begun = True
                    await self._adopt(run_id, tended)
                case Condition.NEVER_BEGAN if not tended.is_stopping and tries < TRIES:
                    tries += 1
                    try:
                        await self._begin(run_id, tended)
                    except OSError as error:
                        tries, why = TRIES, f"its process cannot be started: {error.strerror or error}"
                case Condition.NEVER_BEGAN if folder.seal() and not tended.is_stopping:
                    return self._tell.refused(run_id, why)

    async def _begin(self, run_id: str, tended: Tended) -> None:
        loop = asyncio.get_running_loop()
        has_room = self._pidfds < MOST_PIDFDS
        supervised, notice = await loop.run_in_executor(self._thread, self._spawn, run_id, tended, has_room)
        loop.add_reader(notice, self._hear, run_id, notice)
        await self._watch(run_id, tended, supervised)

    def _spawn(self, run_id: str, tended: Tended, has_room: bool) -> tuple[Supervised, int]:
        """On the thread: first its part of the devices, then its supervisor."""
        spec = tended.spec
        if self._shares is not None and spec.devices:
            kept = self._shares.prepare(run_id, spec.devices, spec.isolation, spec.least_grade)
            spec = msgspec.structs.replace(spec, env={**spec.env, **kept.env}, cgroup=kept.cgroup)
        return spawn(tended.folder, spec, has_room)

    def _hear(self, run_id: str, notice: int) -> None:
        asyncio.get_running_loop().remove_reader(notice)
        has_begun = bool(os.read(notice, 1))
        os.close(notice)
        if has_begun and run_id in self._tended:
            self._tell.started(run_id)

    async def _adopt(self, run_id: str, tended: Tended) -> None:
        start = tended.folder.start_record()
        supervised = find(start, self._pidfds < MOST_PIDFDS) if start is not None else None
        if supervised is None:
            await asyncio.sleep(LOOK_AGAIN_S)  # it is about to write its record, or about to be gone
            return
        self._tell.started(run_id)
        await self._watch(run_id, tended, supervised)

    async def _watch(self, run_id: str, tended: Tended, supervised: Supervised) -> None:
        tended.supervised = supervised
        self._pidfds += supervised.has_pidfd
        clock = asyncio.create_task(self._tell_when_overdue(run_id, tended)) if tended.spec.time_limit_s else None
        try:
            if tended.is_stopping:
                supervised.stop()
            await supervised.gone()
        finally:
            if clock is not None:
                clock.cancel()
            self._pidfds -= supervised.has_pidfd
            tended.supervised = None
            supervised.close()

    async def _tell_when_overdue(self, run_id: str, tended: Tended) -> None:
        """The supervisor counts the time, also while no Kaiwo is there; it is not asked before the time can be up."""
        start = tended.folder.start_record()
        ran_s = time.time() - start.started if start is not None else 0.0
        await asyncio.sleep(max(tended.spec.time_limit_s - ran_s, 0.0))
        while not tended.folder.is_overdue():
            await asyncio.sleep(OVERDUE_S)
        self._tell.overdue(run_id)
