"""The folder of a run: what Kaiwo writes for the supervisor, and the records that the supervisor writes for Kaiwo.

A run that never began is sealed, under its lock, before its devices are freed, so that it cannot begin later.
"""

import contextlib
import enum
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from kaiwo.clusters.embedded.lifecycle import Exit, ExitReason, PlacedRun, TrackedWorkload
from kaiwo.clusters.local.run_cgroup import RunCgroup
from kaiwo.clusters.local.supervisor import boot_id, start_ticks, write_json
from kaiwo.model.errors import ClusterError
from kaiwo.model.gpus.gpu import Share

T = TypeVar("T")
KILL_S = 5.0  # how long killed processes may take to end before the caller is told
LOST = "its supervisor was killed while it ran, or the machine restarted; what was left of it was stopped"


class RunCondition(enum.Enum):
    RUNNING = "running"  # a supervisor holds the lock
    ENDED = "ended"  # there is an exit record
    LOST = "lost"  # it began, and its supervisor is gone
    NEVER_BEGAN = "never-began"


class StartRecord(msgspec.Struct, frozen=True):
    """start.json."""

    supervisor: int
    supervisor_ticks: int
    pid: int
    ticks: int
    boot: str
    started: float
    takes_limit: bool = False  # its supervisor reads limit.json; one of an older Kaiwo does not


class TimeLimit(msgspec.Struct, frozen=True):
    """limit.json: replaces the time limit in run.json while the run goes on."""

    time_limit_s: float  # of real time; 0: none


class ExitRecord(msgspec.Struct, frozen=True):
    """exit.json."""

    code: int
    reason: ExitReason
    message: str = ""
    started: float = 0.0
    ended: float = 0.0
    peak_mib: int = 0  # the most memory that it used; 0: not known


class SavedRun(msgspec.Struct, frozen=True):
    """Its rows in state.db when it started, should that be lost. Its environment is in the RunSpec."""

    tracked: TrackedWorkload
    placement: PlacedRun


class RunSpec(msgspec.Struct, frozen=True):
    """run.json."""

    command: tuple[str, ...]
    env: dict[str, str]
    workdir: str
    log: str
    time_limit_s: float  # of real time; 0: none
    grace_s: float
    workload: str = ""  # for people who read the folder
    pod: str = ""
    devices: tuple[Share, ...] = ()
    cgroup: str = ""  # to start in; empty: Kaiwo's own
    isolation: str = ""  # the requested isolation method
    least_grade: str = ""
    console: bool = False  # a client connects to its input
    open_files: int = 0  # its soft limit; 0: that of Kaiwo
    log_bytes: int = 0  # the first and the last part of a longer log are kept; 0: everything
    secret_env: dict[str, str] = {}  # sealed; the supervisor gets the values when it is started
    saved: SavedRun | None = None  # None: an older Kaiwo wrote it
    groups: tuple[str, ...] = ()  # its own cgroups; none: it is not confined
    memory_mib: int = 0  # the limit of its memory, which holds where it has cgroups; 0: none
    cpu_milli: int = 0


class _Groups(msgspec.Struct, frozen=True):
    """The part of run.json that says where the run's processes are."""

    groups: tuple[str, ...] = ()
    log: str = ""  # in the folder for which it was written


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        return self.path / "log"

    def prepare(self, spec: RunSpec) -> None:
        (self.path / "work").mkdir(parents=True, exist_ok=True)
        os.chmod(self.path, 0o700)  # the environment in run.json may hold secrets
        write_json(str(self.path), "run.json", json.loads(msgspec.json.encode(spec)))
        self.log.touch(mode=0o600)

    def condition(self) -> RunCondition:
        if not (self.path / "lock").exists():
            return RunCondition.NEVER_BEGAN
        with self._locked() as is_ours:
            if (self.path / "exit.json").exists():
                return RunCondition.ENDED
            if not is_ours:
                return RunCondition.RUNNING
            return RunCondition.LOST if (self.path / "start.json").exists() else RunCondition.NEVER_BEGAN

    def seal(self, why: str = "") -> bool:
        """Make sure that a run that has not begun never will; False when it has begun after all."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked() as is_ours:
            if not is_ours or (self.path / "start.json").exists():
                return False
            if not (self.path / "exit.json").exists():
                record = {"code": -signal.SIGTERM, "reason": ExitReason.NEVER_STARTED.value, "message": why[:500]}
                write_json(str(self.path), "exit.json", record)
            return True

    def start_record(self) -> StartRecord | None:
        return self._read("start.json", StartRecord)

    def exit_record(self) -> ExitRecord | None:
        return self._read("exit.json", ExitRecord)

    def set_time_limit(self, time_limit_s: float) -> bool:
        """Store another limit for the supervisor; False if it is that already."""
        known = self._read("limit.json", TimeLimit) or self._read("run.json", TimeLimit)
        if known is not None and known.time_limit_s == time_limit_s:
            return False
        write_json(str(self.path), "limit.json", {"time_limit_s": time_limit_s})
        return True

    def is_overdue(self) -> bool:
        """It reached its time limit, and its supervisor is stopping it or has done so."""
        return (self.path / "overdue").exists()

    def end(self) -> Exit:
        """Only for a run that has ended."""
        try:
            record = self.exit_record()
        except ClusterError as error:
            return Exit(-signal.SIGKILL, ExitReason.LOST, f"how it ended is not known: {error}")
        assert record is not None
        return Exit(record.code, record.reason, record.message, record.peak_mib)

    def cgroup(self) -> RunCgroup:
        found = self._groups()
        return RunCgroup(found.groups if found is not None and not self.is_copy() else ())

    def is_copy(self) -> bool:
        """Whether the processes of this run belong to another folder: somebody copied the home, which is still there.

        A home that was moved is the same folder, or the path of the former one is gone.
        """
        found = self._groups()
        original = os.path.dirname(found.log) if found is not None else ""
        try:
            return original not in ("", str(self.path)) and not os.path.samefile(original, self.path)
        except OSError:
            return False

    def _groups(self) -> _Groups | None:
        try:
            return self._read("run.json", _Groups)
        except ClusterError:
            return None

    def record_loss(self) -> bool:
        """Kill what is left of a lost run, and write its exit record in place of its supervisor.

        False: some process of it cannot be killed yet. It may still use the run's devices.
        """
        cgroup = self.cgroup()
        if not self.kill_remains(cgroup):
            return False
        peak_mib = cgroup.peak_mib()
        with self._locked() as is_ours:
            if is_ours and not (self.path / "exit.json").exists():
                start = self.start_record()
                began = start.started if start else 0.0
                record = ExitRecord(-signal.SIGKILL, ExitReason.LOST, LOST, began, time.time(), peak_mib)
                write_json(str(self.path), "exit.json", msgspec.to_builtins(record))
        cgroup.remove()
        return True

    def kill_remains(self, cgroup: RunCgroup | None = None) -> bool:
        """Kill the processes of a lost run: only those that are certainly its own. False: its cgroup is not empty."""
        cgroup = cgroup or self.cgroup()
        deadline = time.monotonic() + KILL_S
        while (left := self._remains(self.start_record())) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            cgroup.kill()
            time.sleep(0.005)
        return cgroup.end_all(KILL_S)

    def remove(self) -> None:
        """Remove the folder and what is left of the cgroups. Not while the run may still be running."""
        cgroup = self.cgroup()
        if cgroup.folders:
            cgroup.end_all(KILL_S)
            cgroup.remove()
        shutil.rmtree(self.path, ignore_errors=True)

    def _remains(self, start: StartRecord | None) -> list[int]:
        if (start is not None and start.boot != boot_id()) or self.is_copy():
            return []
        run_variable = f"KAIWO_RUN_DIR={self.path}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return [pid for pid in pids if _state(pid) != "Z" and self._is_ours(pid, start, run_variable)]

    def _is_ours(self, pid: int, start: StartRecord | None, run_variable: bytes) -> bool:
        if start is not None and pid == start.pid and start_ticks(pid) == start.ticks:
            return True
        try:
            return run_variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Holds the lock inside the block, unless another process has it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{self.path / name} is damaged ({error})") from error


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"
