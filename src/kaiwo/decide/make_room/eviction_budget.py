"""How many workloads of a queue may still be stopped for others within the hour: see Fairness.evictions_per_hour.

In:    what was stopped recently, and what this cycle stops.   Out: whether more may be stopped.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kaiwo.model.obstacle import EvictionBudgetSpent
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.eviction_history import HOUR_S

Found = TypeVar("Found")


class EvictionBudget:
    """By queue that has one; costs nothing where none has."""

    def __init__(self, state: ClusterState, now_s: int) -> None:
        self._queues, self._now_s = state.queues, now_s
        self._most: dict[int, int] = {}
        self._stopped: dict[int, set[str]] = {}
        self._oldest_s: dict[int, int] = {}
        self.refused: int | None = None  # the queue whose budget was in the way of the last search
        for row, queue in enumerate(self._queues.queues):
            if queue.fairness.evictions_per_hour is not None:
                lately = [each for each in state.recent_stops.get(queue.name, ()) if each.at_s > now_s - HOUR_S]
                self._most[row] = queue.fairness.evictions_per_hour
                self._stopped[row] = {f"{each.workload}@{each.at_s}" for each in lately}
                self._oldest_s[row] = min((each.at_s for each in lately), default=now_s)

    def allows(self, workloads: Iterable[Workload]) -> bool:
        """All of these may be stopped, too."""
        if not self._most:
            return True
        more: dict[int, set[str]] = {}
        for workload in workloads:
            for row in self._rows(workload):
                more.setdefault(row, set()).add(self._key(workload))
        for row, keys in more.items():
            if len(self._stopped[row] | keys) > self._most[row]:
                self.refused = row
                return False
        return True

    def count(self, workload: Workload) -> None:
        """It is stopped."""
        for row in self._rows(workload) if self._most else ():
            self._stopped[row].add(self._key(workload))

    def watched(self, search: Callable[[], Found]) -> Found:
        """The same search; `refused` says afterwards whether a budget was in its way."""
        self.refused = None
        return search()

    @property
    def again_s(self) -> int:
        """When the budget that was in the way has room again."""
        assert self.refused is not None
        return max(self._now_s + 1, self._oldest_s[self.refused] + HOUR_S)

    @property
    def refusal(self) -> EvictionBudgetSpent:
        """What was in the way."""
        assert self.refused is not None
        return EvictionBudgetSpent(self._queues.names[self.refused], self._most[self.refused])

    def _rows(self, workload: Workload) -> list[int]:
        row = self._queues.row.get(workload.queue)
        return [above for above in self._queues.path[row] if above in self._most] if row is not None else []

    def _key(self, workload: Workload) -> str:
        return f"{workload.name}@{self._now_s}"
