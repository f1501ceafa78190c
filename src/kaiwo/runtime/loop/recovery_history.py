"""What was recovered since the start: which failure, who was affected, what was done, and how long it took."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kaiwo.decide.make_room.lost_pods import find_lost_pods
from kaiwo.model.plan import EvictionCause, Plan
from kaiwo.model.recovery import Recovery
from kaiwo.snapshot.cluster_state import ClusterState

MAX_PAST = 500
BOUNDS_S = (0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class PastRecovery(msgspec.Struct, frozen=True):
    """A workload that lost pods and has them again, or has ended."""

    recovery: Recovery
    ended_s: int
    is_whole: bool = True  # False: the workload ended before it had its pods again

    @property
    def took_s(self) -> int:
        return max(0, self.ended_s - self.recovery.since_s)


class DurationKey(NamedTuple):
    cause: str  # node | gpu | link | domain
    way: str  # see RecoveryWay


class Durations:
    """A histogram for each cause and way."""

    def __init__(self) -> None:
        self._counts: dict[DurationKey, list[int]] = {}
        self._sums: Counter[DurationKey] = Counter()

    def add(self, key: DurationKey, took_s: int) -> None:
        counts = self._counts.setdefault(key, [0] * (len(BOUNDS_S) + 1))
        counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._sums[key] += took_s

    def __iter__(self) -> Iterator[tuple[DurationKey, list[tuple[str, float]], float]]:
        """The key, cumulative counts by upper bound, and the sum."""
        for key in sorted(self._counts):
            below, buckets = 0, list[tuple[str, float]]()
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts[key], strict=True):
                below += count
                buckets.append((bound, below))
            yield key, buckets, float(self._sums[key])


class RecoveryHistory:
    def __init__(self) -> None:
        self.past: deque[PastRecovery] = deque(maxlen=MAX_PAST)  # the last one last
        self.durations = Durations()
        self.moved = 0  # pods that were stopped on places that work
        self.lost = 0  # pods that failures took away
        self._known: dict[str, Recovery] = {}

    def count_plan(self, state: ClusterState, plan: Plan, now_s: int) -> None:
        """Call it before the plan is applied to the state."""
        if not (plan.recoveries or plan.recovered or self._known or state.failures.recoveries):
            return
        stopped = {(each.workload, each.pod) for each in plan.evictions if each.cause is EvictionCause.RECOVERY}
        if stopped:  # a pod that was lost before may now be moved from its new place
            by_workload = find_lost_pods(state, state.nodes).items()
            lost = stopped.intersection((name, each.pod.name) for name, found in by_workload for each in found)
            self.lost += len(lost)
            self.moved += len(stopped - lost)
        self._known |= state.failures.recoveries  # also those from before the start
        self._known |= {each.workload: each for each in plan.recoveries}
        for name in plan.recovered:
            recovery = self._known.pop(name, None)
            if recovery is not None:
                self._end(PastRecovery(recovery, now_s))
        for name in [name for name in self._known if name not in state.workloads]:
            self._end(PastRecovery(self._known.pop(name), now_s, is_whole=False))

    def _end(self, past: PastRecovery) -> None:
        self.past.append(past)
        if past.is_whole:
            self.durations.add(DurationKey(past.recovery.kind.value, past.recovery.way.value), past.took_s)
