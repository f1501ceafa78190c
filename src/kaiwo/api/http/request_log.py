"""The API's log: one JSON object a line, bounded on disk."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

MAX_BYTES = 4 * 1024 * 1024


class LineLog:
    """Appends to one file; a full file becomes `.1` and a new one begins."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.lost = 0  # lines that could not be written

    def emit(self, event: str, **fields: Any) -> None:
        """A full disk loses lines, never the request."""
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
        try:
            self._append(msgspec.json.encode(line) + b"\n")
        except OSError:
            self.lost += 1

    def _append(self, line: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size + len(line) > self.max_bytes:
                os.replace(self.path, self.path.with_name(self.path.name + ".1"))
                os.close(file)
                file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(file, line)
        finally:
            os.close(file)
