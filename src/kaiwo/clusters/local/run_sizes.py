"""How much room the folders of ended runs take on disk, measured once for each run, on another thread."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path


class RunSizes:
    def __init__(self, runs: Path, known: Iterable[str] = ()) -> None:
        self._runs = runs
        self._bytes: dict[str, int] = {}
        self._unmeasured = dict.fromkeys(known)
        self.total = 0

    def add(self, run_id: str) -> None:
        """A run begins; its folder is measured when it has ended."""
        self._unmeasured[run_id] = None

    def drop(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._unmeasured.pop(run_id, None)
            self.total -= self._bytes.pop(run_id, 0)

    def of(self, run_id: str) -> int:
        return self._bytes.get(run_id, 0)

    def waiting(self, is_over: Callable[[str], bool]) -> list[str]:
        """The runs that have ended and are not measured yet."""
        return [run_id for run_id in self._unmeasured if is_over(run_id)]

    def keep(self, found: dict[str, int]) -> None:
        for run_id, size in found.items():
            if run_id in self._unmeasured:  # else it was forgotten meanwhile
                del self._unmeasured[run_id]
                self._bytes[run_id] = size
                self.total += size

    def measure(self, run_ids: Iterable[str]) -> dict[str, int]:
        """Reads the disk: call it on another thread."""
        return {run_id: _folder_bytes(str(self._runs / run_id)) for run_id in run_ids}


def _folder_bytes(path: str) -> int:
    """What a folder and everything in it occupy; links are not followed."""
    total = 0
    for folder, _, names in os.walk(path):
        for each in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                total += os.lstat(each).st_blocks * 512
            except OSError:
                continue  # it was removed meanwhile
    return total
