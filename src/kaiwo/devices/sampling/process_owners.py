"""Find the owner of a process: a run of `kaiwo up` or a pod of the kubelet.

In:    a pid.   Out: the id of the run or the UID of the pod; empty if unknown or not readable.
"""

import os
import re
from collections.abc import Iterable

RUN = re.compile(rb"(?:^|\0)KAIWO_RUN=([0-9a-zA-Z-]{1,64})\0")
POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
MOST_BYTES = 1 << 20


class ProcessOwners:
    """Owners of the processes of one machine, read once for each process."""

    def __init__(self, root: str) -> None:
        self._folder = os.path.join(root, "proc")
        self._known: dict[int, str] = {}

    def owner(self, pid: int) -> str:
        """The owner of a process; it never changes, so it is read once."""
        if pid not in self._known:
            self._known[pid] = self._pod(pid) or self._run(pid)
        return self._known[pid]

    def keep_only(self, pids: Iterable[int]) -> None:
        """Forget other processes, because pids are reused."""
        living = set(pids)
        self._known = {pid: owner for pid, owner in self._known.items() if pid in living}

    def _pod(self, pid: int) -> str:
        """`/kubepods.slice/kubepods-burstable-pod1b2c..._....slice/...`, with dashes or underscores."""
        found = POD.search(self._read(pid, "cgroup").decode("latin-1"))
        return found[1].replace("_", "-") if found else ""

    def _run(self, pid: int) -> str:
        found = RUN.search(self._read(pid, "environ"))
        return found[1].decode() if found else ""

    def _read(self, pid: int, name: str) -> bytes:
        try:
            with open(os.path.join(self._folder, str(pid), name), "rb") as file:
                return file.read(MOST_BYTES)
        except OSError:
            return b""
