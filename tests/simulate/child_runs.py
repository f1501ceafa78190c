"""The simulations that a process has started, so that a test can interrupt it at the right moment."""

import subprocess
import time
from pathlib import Path

_seen: dict[int, set[str]] = {}


def wait_for_runs(process: "subprocess.Popen[str]", count: int, deadline_s: float = 120) -> None:
    """Until so many simulations were begun, or the process has ended."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until and process.poll() is None and _started(process.pid) < count:
        time.sleep(0.05)


def _started(pid: int) -> int:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = path.read_text().split() if path.exists() else []
    _seen.setdefault(pid, set()).update(child for child in children if b"spawn_main" in _command_of(child))
    return len(_seen[pid])


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
