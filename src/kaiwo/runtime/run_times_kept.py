"""Learned run times in a file of the home folder: one line a run, so that a line more is all that a run costs.

In:    runs as they end.   Out: the last of them, after a restart too.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from kaiwo.runtime.run_times import KINDS_KEPT, RUNS_KEPT, Kind

FILE = "run-times.jsonl"
MOST_LINES = 2 * KINDS_KEPT * RUNS_KEPT  # then those that count are written anew

Line = tuple[str, str, int]


class InFile:
    """For a cluster of one process."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE

    def recall(self) -> list[tuple[Kind, int]]:
        """A line that is torn is skipped: it was the last one before the power went."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return []
        runs: list[tuple[Kind, int]] = []
        for line in lines[-MOST_LINES:]:
            with contextlib.suppress(msgspec.MsgspecError):
                owner, pods, run_s = msgspec.json.decode(line, type=Line)
                runs.append((Kind(owner, pods), run_s))
        if len(lines) > MOST_LINES:
            self._write_anew(runs[-MOST_LINES // 2 :])
        return runs

    def add(self, kind: Kind, run_s: int) -> None:
        """A full disk costs what is remembered over the next restart, and nothing else."""
        with contextlib.suppress(OSError), self._path.open("ab") as file:
            file.write(msgspec.json.encode((*kind, run_s)) + b"\n")

    def _write_anew(self, runs: list[tuple[Kind, int]]) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_bytes(b"".join(msgspec.json.encode((*kind, run_s)) + b"\n" for kind, run_s in runs))
            os.replace(temporary, self._path)
