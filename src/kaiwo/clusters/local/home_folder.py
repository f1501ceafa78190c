"""KAIWO_HOME: the paths inside it, and its lock for one Kaiwo at a time."""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from kaiwo.model.errors import ClusterError

# What earlier versions left readable for other users.
_ONCE_READABLE = ("audit.jsonl", "audit.jsonl.1", "run-times.jsonl", "past-use.json", "server.json", "journal", "runs")
LOCK_WAIT_S = 2.0  # a Kaiwo that was killed while it started a process holds the lock a moment longer


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state.db"
        self.runs = path / "runs"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)  # environments may hold secrets
            _check_owner(path)
            self.runs.mkdir(exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ClusterError(f"{path} cannot be used ({error.strerror}); set KAIWO_HOME to another folder") from error
        self._take_lock()
        for name in _ONCE_READABLE:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(path / name, 0o700 if (path / name).is_dir() else 0o600)

    def close(self) -> None:
        os.close(self._lock)

    def _take_lock(self) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    pid = os.pread(self._lock, 20, 0).decode(errors="replace").strip() or "unknown"
                    os.close(self._lock)
                    raise ClusterError(
                        f"another Kaiwo (pid {pid}) uses {self.path}; stop it, or set KAIWO_HOME to another folder"
                    ) from None
                time.sleep(0.02)
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)


def _check_owner(path: Path) -> None:
    """Whoever owns the folder can replace everything in it: the token, the state and the commands of others."""
    owner = path.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise ClusterError(
            f"{path} belongs to another user (uid {owner}), who could read and replace what Kaiwo keeps there; "
            "set KAIWO_HOME to a folder of your own, or run Kaiwo as that user"
        )
