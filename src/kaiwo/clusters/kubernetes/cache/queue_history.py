"""Keep the history of queues, which is stored in their status: past usage, and evictions for other workloads.

While this replica leads, its own history counts: an object of the cluster is never newer.
"""

from collections.abc import Container, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.decode.wire_objects import Wire
from kaiwo.model.events import StoppedForOthers
from kaiwo.snapshot.evictions.eviction_history import HOUR_S

MAX_STOPS = 256  # of one queue, the last ones: a status must stay small
WHOLE = 1 << 40  # a part of 1, in the units of `queues.usage`
DIGITS = Decimal("0.000000001")


class StoredUsage(NamedTuple):
    """The decayed share of the cluster that a queue used, and when it was computed."""

    at_s: int
    part: tuple[int, ...]


class StopStatus(Wire, omit_defaults=True):
    """An eviction for another workload, as in a status."""

    workload: str
    at_seconds: int
    queues: tuple[str, ...] = ()
    moved: bool = False


class UsageStatus(Wire):
    """Past usage as in a status: parts of the whole cluster, as decimal numbers."""

    at_seconds: int = 0
    gpu: str = "0"
    cpu: str = "0"
    memory: str = "0"


class QueueStatusObject(Wire):
    usage: UsageStatus | None = None
    stops: tuple[StopStatus, ...] | None = None


_decode = msgspec.json.Decoder(QueueStatusObject).decode


def read_queue_status(status: Raw) -> QueueStatusObject:
    """Empty where there is none or it is damaged."""
    try:
        return _decode(status) if status else QueueStatusObject()
    except msgspec.DecodeError:
        return QueueStatusObject()


class QueueHistory:
    def __init__(self) -> None:
        self.usage: dict[str, StoredUsage] = {}
        self.stops: dict[str, tuple[StoppedForOthers, ...]] = {}
        self._own: set[str] = set()  # queues for which our history is newer than their objects
        self._unwritten: dict[str, None] = {}
        self._last: dict[str, StoppedForOthers] | None = None  # by workload; None: out of date

    def upsert(self, queue: str, status: QueueStatusObject) -> list[StoppedForOthers]:
        """A queue is new or changed. Returns the stops that were not known."""
        if queue in self._own:
            return []
        if status.usage is not None and (past := _read_past(status.usage)) is not None:
            self.usage[queue] = past
        known = set(self.stops.get(queue, ()))
        self._last = None
        self.stops[queue] = tuple(
            StoppedForOthers(each.workload, each.at_seconds, each.queues, each.moved) for each in status.stops or ()
        )
        return [each for each in self.stops[queue] if each not in known]

    def record_stop(self, queue: str, event: StoppedForOthers, live: Container[str]) -> None:
        before = (*self.stops.get(queue, ()), event)
        kept = [each for each in before if each.at_s > event.at_s - HOUR_S or each.workload in live]
        self.stops[queue] = tuple(kept[-MAX_STOPS:])
        self._last = None
        self._change(queue)

    def record_usage(self, queue: str, past: StoredUsage) -> None:
        self.usage[queue] = past
        self._change(queue)

    def delete(self, queue: str) -> None:
        self.usage.pop(queue, None)
        self.stops.pop(queue, None)
        self._last = None
        self._own.discard(queue)
        self._unwritten.pop(queue, None)

    def discard_decisions(self) -> None:
        """Another replica leads: what is in the objects counts."""
        self._own, self._unwritten = set(), {}

    def take_unwritten(self) -> list[str]:
        fresh, self._unwritten = self._unwritten, {}
        return list(fresh)

    def retry_write(self, queue: str) -> None:
        self._unwritten[queue] = None

    def last_stop(self, workload: str) -> StoppedForOthers | None:
        if self._last is None:
            self._last = {each.workload: each for each in self.all_stops() if not each.is_moved}
        return self._last.get(workload)

    def all_stops(self) -> Iterable[StoppedForOthers]:
        every = (each for stops in self.stops.values() for each in stops)
        return sorted(every, key=lambda each: (each.at_s, each.workload))

    def status(self, queue: str) -> dict[str, Any]:
        """The status fields, as the custom resource definition names them."""
        stops = [StopStatus(each.workload, each.at_s, each.queues, each.is_moved) for each in self.stops.get(queue, ())]
        found: dict[str, Any] = {"stops": msgspec.to_builtins(stops)}
        past = self.usage.get(queue)
        if past is not None:
            parts = (str((Decimal(part) / WHOLE).quantize(DIGITS).normalize()) for part in past.part)
            found["usage"] = msgspec.to_builtins(UsageStatus(past.at_s, *parts))
        return found

    def _change(self, queue: str) -> None:
        self._own.add(queue)
        self._unwritten[queue] = None


def _read_past(usage: UsageStatus) -> StoredUsage | None:
    """None: it is damaged."""
    try:
        parts = [Decimal(text) for text in (usage.gpu, usage.cpu, usage.memory)]
    except InvalidOperation:
        return None
    if not all(part.is_finite() and 0 <= part <= 1 for part in parts):
        return None
    return StoredUsage(usage.at_seconds, tuple(int(part * WHOLE) for part in parts))
