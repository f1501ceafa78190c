"""KAIWO_HOME: the paths inside it, its lock for one Kaiwo at a time, and the audit log of what people did."""

import contextlib
import datetime
import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from kaiwo.model.errors import ClusterError

AUDIT_BYTES = 16 << 20
AUDIT_NAMES = 100  # objects named in one write; of more, only the number is written
LOCK_WAIT_S = 2.0  # a Kaiwo that was killed while it started a process holds the lock a moment longer


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state.db"
        self.runs = path / "runs"
        self._audit = path / "audit.jsonl"
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)  # environments may hold secrets
            self.runs.mkdir(exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ClusterError(f"{path} cannot be used ({error.strerror}); set KAIWO_HOME to another folder") from error
        self._take_lock()

    def audit(self, who: str, verb: str, objects: Sequence[str]) -> None:
        """One line for each object; a large batch is one line with its size."""
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        lines = [{"at": at, "who": who, "verb": verb, "object": name} for name in objects[:AUDIT_NAMES]]
        if len(objects) > AUDIT_NAMES:
            lines = [{"at": at, "who": who, "verb": verb, "object": f"{objects[0]} and {len(objects) - 1} more"}]
        with self._audit.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            size = file.tell()
        if size > AUDIT_BYTES:
            self._audit.replace(self._audit.with_suffix(".jsonl.1"))

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
