"""Where past use is kept: in a file of the home folder, or in the status of the cluster's queues.

In:    past use of some queues.   Out: that of all of them, after a restart too.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from kaiwo.clusters.kubernetes.memory import Memory
from kaiwo.clusters.kubernetes.memory import Past as PastOfQueue
from kaiwo.runtime.past_use import Past

FILE = "past-use.json"


class InFile:
    """For a cluster without objects: the whole file or nothing."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE
        self._past = _read(self._path)

    def recall(self) -> dict[str, Past]:
        """Nobody else writes the file."""
        return self._past

    def save(self, past: dict[str, Past]) -> None:
        """A full disk costs what is remembered over the next restart, and nothing else."""
        self._past = self._past | past
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_bytes(msgspec.json.encode(self._past))
            os.replace(temporary, self._path)


class InQueues:
    """On Kubernetes, where another replica may go on with it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def recall(self) -> dict[str, Past]:
        """As the objects say, or as we want them to be."""
        return {name: (past.at_s, past.part) for name, past in list(self._memory.usage.items())}

    def save(self, past: dict[str, Past]) -> None:
        """Written soon."""
        for name, (at_s, part) in past.items():
            self._memory.use(name, PastOfQueue(at_s, part))


def _read(path: Path) -> dict[str, Past]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Past])
    except (OSError, msgspec.MsgspecError):
        return {}
