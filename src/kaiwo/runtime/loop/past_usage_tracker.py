"""Track the past usage of queues over time and restarts: recent heavy use lowers a queue's share for a while.

Between two samples a queue counts as using what it uses at the second one; time without samples counts as unused. The
store (a file of the home folder, or the status of the cluster's queues) is updated seldom: a reader decays what it
finds, and is wrong by at most one percent.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from kaiwo.model.events import PastUsageChanged
from kaiwo.model.policy import Policy
from kaiwo.queues.past_usage import DECAY_SCALE, WHOLE_PART, PastUsage, advance, decay_factor
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.queue_table import RESOURCES

if TYPE_CHECKING:  # `kaiwo up` has no use for it
    from kaiwo.clusters.kubernetes.cache.queue_history import QueueHistory

SAMPLE_S = 10
AHEAD_S = 60  # by this much the clocks of two replicas may differ
UPDATE_S = 60  # each update makes all waiting work be tried again
WORTH_UPDATE = WHOLE_PART // 1000  # a thousandth of the cluster
WORTH_KEEPING = WHOLE_PART * WHOLE_PART // 100

Parts = tuple[int, ...]  # one for each resource, in 1 / (WHOLE_PART * WHOLE_PART)
Past = tuple[int, Parts]  # when they were measured, and the parts
NOTHING: Parts = (0,) * len(RESOURCES)


class PastUsageTracker:
    def __init__(self, store: "PastUsageFile | PastUsageInQueues", half_life_s: int, strength_milli: int) -> None:
        self._store, self._half_life_s, self._strength_milli = store, half_life_s, strength_milli
        self._at_s = 0
        self._parts: dict[str, Parts] = {}
        self._saved: dict[str, Past] = {}
        self._sent: PastUsageChanged | None = None
        self._sent_s = 0

    @classmethod
    def of(cls, policy: Policy, store: "PastUsageFile | PastUsageInQueues") -> "PastUsageTracker | None":
        """The tracker that the policy asks for; None if past usage does not count."""
        if not policy.past_use_half_life_s or not policy.past_use_strength_milli:
            return None
        return cls(store, policy.past_use_half_life_s, policy.past_use_strength_milli)

    def move_times(self, by_s: int) -> None:
        """The clock was set ahead or back: what was measured stays as long ago."""
        self._at_s += by_s if self._at_s else 0
        self._sent_s += by_s
        self._saved = {name: (at_s + by_s, parts) for name, (at_s, parts) in self._saved.items()}

    def update(self, state: ClusterState, now_s: int) -> PastUsageChanged | None:
        """Account for the time since the last update. The state's tables must be fresh and must not change."""
        if self._sent is not None and now_s - self._at_s < SAMPLE_S:
            return None
        is_first = self._load(now_s)
        queues = state.queues
        parts = [self._parts.get(name, NOTHING) for name in queues.names]
        before = PastUsage(np.array(parts, np.int64).reshape(len(parts), len(RESOURCES)))
        # At the first update it is unknown what was used since the last save.
        used = np.zeros_like(queues.used) if is_first else queues.used
        if self._at_s:
            elapsed_s = max(0, now_s - self._at_s)
            before = advance(before, used, state.nodes.totals(), elapsed_s, self._half_life_s)
        self._at_s, self._parts = now_s, _by_name(queues.names, before.part)
        self._save()
        usage = PastUsageChanged(_by_name(queues.names, before.parts), self._strength_milli)
        if self._sent is not None and (now_s - self._sent_s < UPDATE_S or not _differ(usage, self._sent)):
            return None
        self._sent, self._sent_s = usage, now_s
        return usage

    def _load(self, now_s: int) -> bool:
        """Load the store if it is newer than our data, at the start or after another replica led; True if it was."""
        stored = self._store.load()
        if early := {name: (now_s, parts) for name, (at_s, parts) in stored.items() if at_s > now_s + AHEAD_S}:
            self._store.save(early)  # the clock was set back: these times would hide all use until they are reached
            stored = {**stored, **early}
        newest_s = max((at_s for at_s, _ in stored.values()), default=0)
        is_first = self._sent is None or newest_s > self._at_s
        if is_first:
            self._saved, self._at_s = stored, newest_s
            self._parts = {name: self._fade(past, newest_s) for name, past in stored.items()}
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
        at_s, parts = past
        factor = decay_factor(max(0, now_s - at_s), self._half_life_s)
        return tuple(part * factor // DECAY_SCALE for part in parts)


def _by_name(names: Sequence[str], parts: IntArray) -> dict[str, Parts]:
    return {name: tuple(part) for name, part in zip(names, parts.tolist(), strict=True) if any(part)}


def _differ(one: PastUsageChanged, other: PastUsageChanged) -> bool:
    return any(
        abs(a - b) >= WORTH_UPDATE
        for name in {*one.parts, *other.parts}
        for a, b in zip(one.parts.get(name, NOTHING), other.parts.get(name, NOTHING), strict=True)
    )


FILE = "past-use.json"


class PastUsageFile:
    """Stores past usage in a file of the home folder, which no other process writes."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE
        self._past: dict[str, Past] = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._past = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Past])

    def load(self) -> dict[str, Past]:
        return self._past

    def save(self, past: dict[str, Past]) -> None:
        """Store it. If the disk is full, the usage is forgotten at the next restart."""
        self._past = self._past | past
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.touch(mode=0o600)
            temporary.write_bytes(msgspec.json.encode(self._past))
            os.replace(temporary, self._path)


class PastUsageInQueues:
    """Stores past usage in the status of Kubernetes queues, where another replica finds it."""

    def __init__(self, history: "QueueHistory") -> None:
        self._history = history

    def load(self) -> dict[str, Past]:
        return {name: (past.at_s, past.part) for name, past in list(self._history.usage.items())}

    def save(self, past: dict[str, Past]) -> None:
        from kaiwo.clusters.kubernetes.cache.queue_history import StoredUsage

        for name, (at_s, part) in past.items():
            self._history.record_usage(name, StoredUsage(at_s, part))
