"""Metrics and health of the scheduling loop: allocations, cycle times, event loop lag, failures."""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from kaiwo.model.events import Event, PodChanged, PodGone, ReservationChanged, WorkloadChanged
from kaiwo.model.plan import Plan
from kaiwo.model.workload import Phase
from kaiwo.runtime.loop.cycle_runner import CycleSummary
from kaiwo.snapshot.cluster_state import ClusterState

STAGES = ("requested", "refused", "allocated", "expired", "released")


class Allocations:
    """Counts since the start. Events are counted before they are applied to the state."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter(dict.fromkeys(STAGES, 0))
        self.reservations = 0  # made since the start
        self.picked = 0  # devices picked for reservations, including those picked again
        self.domain_choices: Counter[tuple[str, str, str]] = Counter()  # by topology, level and strategy

    def count_events(self, state: ClusterState, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case WorkloadChanged(workload):
                    self.stages["requested"] += workload.name not in state.workloads
                case PodChanged(pod):
                    before = state.pods.get(pod.workload, {}).get(pod.name)
                    is_over = pod.phase is Phase.DONE and before is not None and before.phase is not Phase.DONE
                    self.stages["released"] += is_over
                case PodGone(workload, name):
                    before = state.pods.get(workload, {}).get(name)
                    self.stages["released"] += before is not None and before.phase is not Phase.DONE
                case ReservationChanged(reservation):
                    self.reservations += reservation.name not in state.reservations.objects

    def count_plan(self, plan: Plan) -> None:
        self.stages["allocated"] += len(plan.starts)
        self.stages["expired"] += len(plan.expired)
        self.picked += sum(len(picked.devices) for picked in plan.reserved)
        self.domain_choices.update((each.topology, each.level, each.strategy) for each in plan.domains)

    def refused(self) -> None:
        self.stages["refused"] += 1


BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class CycleTimes:
    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._last = -1
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def record(self, cycle: CycleSummary | None) -> None:
        """Add a finished cycle, once."""
        if cycle is None or cycle.number == self._last:
            return
        self._last = cycle.number
        took_s = cycle.took_us / 1_000_000
        self.count += 1
        self.sum_s += took_s
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Cumulative counts by upper bound."""
        below = 0
        for bound, count in zip(BOUNDS_S, self._counts, strict=False):
            below += count
            yield bound, below


INTERVAL_S = 0.05
SAMPLES = 1200  # the last minute


class LoopLag:
    """Sleeps for a short time again and again, and measures how late it wakes up."""

    def __init__(self, interval_s: float = INTERVAL_S, samples: int = SAMPLES) -> None:
        self._interval_s = interval_s
        self._samples: deque[float] = deque(maxlen=samples)
        self.worst_s = 0.0  # since the start

    def __len__(self) -> int:
        return len(self._samples)

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(self._interval_s)
            late_s = max(0.0, time.perf_counter() - began - self._interval_s)
            self._samples.append(late_s)
            self.worst_s = max(self.worst_s, late_s)

    def quantile(self, part: float) -> float:
        """The lag at this quantile in the last minute; 0 before the first sample."""
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

    def quantiles(self) -> dict[str, float]:
        return {name: self.quantile(float(name)) for name in ("0.5", "0.99", "1")}


NOT_READY_AFTER = 3  # cycles that failed in a row


class Health:
    def __init__(self) -> None:
        self.failures = 0  # cycles that raised; the log has each
        self.left_out = 0  # objects that could not be read; the log has each
        self._in_a_row = 0
        self._last = ""

    def cycle_failed(self, error: Exception) -> str:
        """Count a failed cycle; return its error as text."""
        self.failures += 1
        self._in_a_row += 1
        self._last = describe_error(error)
        return self._last

    def cycle_ended(self) -> None:
        self._in_a_row = 0

    @property
    def problem(self) -> str:
        """Why nothing is scheduled; empty if cycles succeed."""
        if self._in_a_row < NOT_READY_AFTER:
            return ""
        return f"the last {self._in_a_row} scheduling cycles failed, the last one with {self._last}; see the log"


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
