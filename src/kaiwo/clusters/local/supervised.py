"""A supervisor process as Kaiwo sees it: hear of its end, tell it to stop.

In:    a process that this Kaiwo started, or the start record that a former one left.   Out: its end, when it comes.
Never: signals a stranger that got a dead supervisor's pid: a pidfd stays with its process, and is checked once opened.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from kaiwo.clusters.local import supervisor
from kaiwo.clusters.local.runs import RunFolder, RunSpec, StartRecord
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
