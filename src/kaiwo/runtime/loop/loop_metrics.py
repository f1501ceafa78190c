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

WAIT_BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0)
PROMISE_SLACK_S = 60  # a planned start that is late by less is kept
PROMISE_ENDS = ("kept", "delayed", "dropped")
DECISIONS = ("start", "evict", "keep-place", "plan-start", "wait")
STAGES = ("requested", "refused", "allocated", "expired", "released")


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.count, self.sum_s = 0, 0.0
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)

    def add(self, value_s: float) -> None:
        self.count += 1
        self.sum_s += value_s
        self._counts[bisect_left(self._bounds, value_s)] += 1

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Cumulative counts by upper bound."""
        below = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            yield bound, below


class Allocations:
    """Counts since the start. Events are counted before they are applied to the state."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter(dict.fromkeys(STAGES, 0))
        self.decisions: Counter[str] = Counter(dict.fromkeys(DECISIONS, 0))  # of all cycles, by kind
        self.reservations = 0  # made since the start
        self.picked = 0  # devices picked for reservations, including those picked again
        self.domain_choices: Counter[tuple[str, str, str]] = Counter()  # by topology, level and strategy
        self.waits = Histogram(WAIT_BOUNDS_S)  # from the submission to the first start of each workload
        self.promises: Counter[str] = Counter(dict.fromkeys(PROMISE_ENDS, 0))  # planned starts, by what became of them

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
        made = (plan.starts, plan.evictions, plan.nominations, plan.promises, plan.waits)
        self.decisions.update({kind: len(each) for kind, each in zip(DECISIONS, made, strict=True)})
        self.picked += sum(len(picked.devices) for picked in plan.reserved)
        self.domain_choices.update((each.topology, each.level, each.strategy) for each in plan.domains)

    def count_waits(self, plan: Plan, state: ClusterState, now_s: int) -> None:
        """Call it before the plan is applied: a workload that has pods is growing, or gets a lost pod back."""
        for name in {start.workload for start in plan.starts}:
            workload = state.workloads.get(name)
            if workload is not None and not state.pods.get(name):
                self.waits.add(max(0, now_s - workload.submitted_s))

    def count_promises(self, plan: Plan, state: ClusterState, now_s: int) -> None:
        """Call it before the plan is applied. A planned start that moves later is delayed each time."""
        if not (plan.unpromised or plan.promises):
            return
        before, started = state.planned_starts, {start.workload for start in plan.starts}
        for name in plan.unpromised:
            planned, workload = before.get(name), state.workloads.get(name)
            if planned is None or workload is None or workload.held or not planned.is_time_known:
                continue  # it was cancelled or held by a person, or nobody said when it starts
            if name not in started:
                self.promises["dropped"] += 1
            else:
                self.promises["delayed" if now_s > planned.start_s + PROMISE_SLACK_S else "kept"] += 1
        for promise in plan.promises:
            planned = before.get(promise.workload)
            if planned is not None and planned.is_time_known:
                self.promises["delayed"] += promise.start_s > planned.start_s + PROMISE_SLACK_S

    def refused(self) -> None:
        self.stages["refused"] += 1


BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class CycleTimes(Histogram):
    def __init__(self) -> None:
        super().__init__(BOUNDS_S)
        self._last = -1

    def record(self, cycle: CycleSummary | None) -> None:
        """Add a finished cycle, once."""
        if cycle is None or cycle.number == self._last:
            return
        self._last = cycle.number
        self.add(cycle.took_us / 1_000_000)


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
