"""Past use, kept over time and over restarts: who used more than its part lately gets less of the rest for a while.

In:    what the queues use now, looked at every few seconds.   Out: a word to the picture when it has moved.
Between two looks a queue is taken to have used what it uses at the second. Time during which nobody looked counts as
unused. Where it is kept, it is kept seldom: whoever reads it there lets it fade, and is at most a hundredth wrong.

Also: Where past use is kept: in a file of the home folder, or in the status of the cluster's queues.
"""

import contextlib
import os
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from kaiwo.clusters.kubernetes.cache.queue_history import PastUsage as PastOfQueue
from kaiwo.clusters.kubernetes.cache.queue_history import QueueHistory
from kaiwo.model.events import PastUsageChanged
from kaiwo.model.policy import Policy
from kaiwo.queues.past_usage import DECAY_SCALE, WHOLE_PART, PastUsage, advance, decay_factor
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import RESOURCES

LOOK_S = 10
TELL_S = 60  # every word lets everybody who waits be tried anew
WORTH_TELLING = WHOLE_PART // 1000  # a thousandth of the cluster
WORTH_KEEPING = WHOLE_PART * WHOLE_PART // 100

Parts = tuple[int, ...]  # one a resource, in 1 / (ONE * ONE)
Past = tuple[int, Parts]  # when that was so
NOTHING: Parts = (0,) * len(RESOURCES)


class Store(Protocol):
    """Where it is kept, by queue."""

    def recall(self) -> dict[str, Past]:
        """What is there now; somebody else may have written it."""

    def save(self, past: dict[str, Past]) -> None:
        """These are different now."""


class PastUse:
    """One cluster's memory."""

    def __init__(self, store: Store, half_life_s: int, strength_milli: int) -> None:
        self._store, self._half_life_s, self._strength_milli = store, half_life_s, strength_milli
        self._at_s = 0
        self._parts: dict[str, Parts] = {}
        self._saved: dict[str, Past] = {}
        self._told: PastUsageChanged | None = None
        self._told_s = 0

    @classmethod
    def of(cls, policy: Policy, store: Store) -> "PastUse | None":
        """None when the policy does not count it."""
        if not policy.past_use_half_life_s or not policy.past_use_strength_milli:
            return None
        return cls(store, policy.past_use_half_life_s, policy.past_use_strength_milli)

    def look(self, state: ClusterState, now_s: int) -> PastUsageChanged | None:
        """Count the time since the last look. The picture must stand still and be tidy."""
        if self._told is not None and now_s - self._at_s < LOOK_S:
            return None
        is_first = self._recall()
        queues = state.queues
        before = PastUsage(_array([self._parts.get(name, NOTHING) for name in queues.names]))
        # At the first look nobody knows who used what since it was written.
        used = np.zeros_like(queues.used) if is_first else queues.used
        if self._at_s:
            elapsed_s = max(0, now_s - self._at_s)
            before = advance(before, used, state.nodes.totals(), elapsed_s, self._half_life_s)
        rows = zip(queues.names, before.part.tolist(), strict=True)
        self._at_s, self._parts = now_s, {name: tuple(part) for name, part in rows if any(part)}
        self._save()
        told = PastUsageChanged(_by_name(queues.names, before.parts), self._strength_milli)
        if self._told is not None and (now_s - self._told_s < TELL_S or not _differ(told, self._told)):
            return None
        self._told, self._told_s = told, now_s
        return told

    def _recall(self) -> bool:
        """Whether what is kept is newer than what we know: we just started, or another one led meanwhile."""
        kept = self._store.recall()
        newest_s = max((at_s for at_s, _ in kept.values()), default=0)
        is_first = self._told is None or newest_s > self._at_s
        if is_first:
            self._saved, self._at_s = kept, newest_s
            self._parts = {name: self._fade(past, newest_s) for name, past in kept.items()}
        return is_first

    def _save(self) -> None:
        fresh = {}
        for name in {*self._parts, *self._saved}:
            part = self._parts.get(name, NOTHING)
            faded = self._fade(self._saved.get(name, (self._at_s, NOTHING)), self._at_s)
            if any(abs(a - b) >= WORTH_KEEPING for a, b in zip(part, faded, strict=True)):
                fresh[name] = (self._at_s, part)
        if fresh:
            self._saved = self._saved | fresh
            self._store.save(fresh)

    def _fade(self, past: Past, now_s: int) -> Parts:
        """What is left of it if nothing was used since."""
        at_s, parts = past
        kept = decay_factor(max(0, now_s - at_s), self._half_life_s)
        return tuple(part * kept // DECAY_SCALE for part in parts)


def _array(rows: list[Parts]) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    return np.array(rows, np.int64).reshape(len(rows), len(RESOURCES))


def _by_name(names: list[str], parts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> dict[str, Parts]:
    return {name: tuple(part) for name, part in zip(names, parts.tolist(), strict=True) if any(part)}


def _differ(one: PastUsageChanged, other: PastUsageChanged) -> bool:
    return any(
        abs(a - b) >= WORTH_TELLING
        for name in {*one.parts, *other.parts}
        for a, b in zip(one.parts.get(name, NOTHING), other.parts.get(name, NOTHING), strict=True)
    )


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

    def __init__(self, memory: QueueHistory) -> None:
        self._memory = memory

    def recall(self) -> dict[str, Past]:
        """As the objects say, or as we want them to be."""
        return {name: (past.at_s, past.part) for name, past in list(self._memory.usage.items())}

    def save(self, past: dict[str, Past]) -> None:
        """Written soon."""
        for name, (at_s, part) in past.items():
            self._memory.record_usage(name, PastOfQueue(at_s, part))


def _read(path: Path) -> dict[str, Past]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Past])
    except (OSError, msgspec.MsgspecError):
        return {}
