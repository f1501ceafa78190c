"""Whose a process is: the run of `kaiwo up` or the pod of the kubelet that it was started for.

In:    a process's number.   Out: a run's id or a pod's UID; empty when it tells neither, or we may not look.
Never: looks twice while the process lives.
"""

import os
import re
from collections.abc import Iterable

RUN = re.compile(rb"(?:^|\0)KAIWO_RUN=([0-9a-zA-Z-]{1,64})\0")
POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
MOST_BYTES = 1 << 20


class ProcessOwners:
    """Of the processes of one machine."""

    def __init__(self, root: str) -> None:
        self._folder = os.path.join(root, "proc")
        self._known: dict[int, str] = {}

    def owner(self, pid: int) -> str:
        """Known from the first look on: a process is started for somebody and stays theirs."""
        if pid not in self._known:
            self._known[pid] = self._pod(pid) or self._run(pid)
        return self._known[pid]

    def keep_only(self, pids: Iterable[int]) -> None:
        """Numbers are used again."""
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
