"""Faults of one machine, as the storm tests cause them: a full disk, stopped processes, a changed clock, damage."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.product import supervisors
from tests.stepped_clock import SteppedClock

HOUR_S = 3600


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """A file system of its own, if this user may mount one: says whether it is."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "kaiwo-test", str(folder)]
    is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full_disk(ballast: Path) -> Iterator[None]:
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield
    finally:
        ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """These processes stand still, as on a machine that swaps or sleeps."""
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Faults:
    """Causes one fault after the other, each for a while."""

    def __init__(self, home: Path, clock: SteppedClock, has_small_disk: bool, chance: random.Random) -> None:
        self._home, self._clock, self._has_small_disk, self._chance = home, clock, has_small_disk, chance
        self.counts = dict.fromkeys(("full disk", "stopped Kaiwo", "stopped supervisor", "clock step"), 0)

    def cause_one(self, kaiwo: int, longest_s: float) -> None:
        """The length of a fault is the test's input, not a wait for anything."""
        chance = self._chance
        lasts_s = longest_s * chance.random()
        kind = chance.choice([name for name in self.counts if self._has_small_disk or name != "full disk"])
        self.counts[kind] += 1
        match kind:
            case "full disk":
                with full_disk(self._home / "ballast"):
                    time.sleep(lasts_s)
            case "stopped Kaiwo":
                with stopped(kaiwo):
                    time.sleep(lasts_s)
            case "stopped supervisor":
                with stopped(*chance.sample(sorted(found := supervisors(self._home)), min(2, len(found)))):
                    time.sleep(lasts_s)
            case "clock step":
                self._clock.set(chance.choice((-HOUR_S, 0, HOUR_S)))


def damage(path: Path, chance: random.Random) -> str:
    """Change a file at random as bad disks and careless people do. Returns what was done."""
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing: it is empty"
    at = chance.randrange(len(content))
    kind = chance.choice(("bytes", "zeros", "cut", "bit", "emptied"))
    match kind:
        case "bytes":
            content[at : at + 64] = chance.randbytes(64)
        case "zeros":
            content[at : at + 8192] = bytes(min(8192, len(content) - at))
        case "cut":
            del content[at:]
        case "bit":
            content[at] ^= 1 << chance.randrange(8)
        case "emptied":
            content.clear()
    path.write_bytes(content)
    return f"{kind} at {at} of {path.name}"
