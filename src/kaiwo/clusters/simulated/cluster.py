"""A cluster in memory on a virtual clock that moves only when the caller advances it.

It reads no clock, does no I/O and runs no process (a command takes simulated time), so every run gives the same events.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.cluster import EmbeddedCluster
from kaiwo.clusters.embedded.ended_work import DEFAULT_RETENTION, Retention
from kaiwo.clusters.embedded.lifecycle import simulated_exit
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.protocol import Cluster
from kaiwo.model.events import Event, ReservationChanged, WorkloadChanged
from kaiwo.model.node import Node
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE, Queue

T = TypeVar("T")


class SimulatedCluster(EmbeddedCluster):
    """Everything happens at a whole second, in the order in which it began."""

    kind = name = "simulated"
    is_virtual = True

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        queues: Sequence[Queue] = (),
        start_s: int = 0,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        super().__init__(EmbeddedState(), retention)
        self._now_s = start_s
        self._ends: list[tuple[int, int, str]] = []  # when, in which order, which run
        self._wakes: list[int] = []  # when a waiting workload may be tried again
        self._begun = 0
        with self.state.transaction(start_s) as transaction:
            transaction.put_queue(UNBOUNDED_DEFAULT_QUEUE)
            for queue in queues:
                transaction.put_queue(queue)
            for node in nodes:
                transaction.put_node(node)

    def now_s(self) -> int:
        return self._now_s

    def advance(self, seconds: int) -> None:
        """Advance the clock; every run that is due on the way ends at its own second."""
        until_s = self._now_s + seconds
        while self._ends and self._ends[0][0] <= until_s:
            self._now_s = max(self._now_s, self._ends[0][0])
            self._transact(self._end_due)
        self._now_s = until_s

    def advance_to_next(self) -> int:
        """Advance to the next second at which anything is due. Returns by how many seconds; 0: nothing is left."""
        while self._wakes and self._wakes[0] <= self._now_s:
            heapq.heappop(self._wakes)
        due = [*self._wakes[:1], *(end[0] for end in self._ends[:1])]
        seconds = max(min(due) - self._now_s, 0) if due else 0
        if due:
            self.advance(seconds)
        return seconds

    async def transact(self, act: Callable[[Transaction], T], is_acknowledged: bool = True) -> T:
        return self._transact(act)

    def _transact(self, act: Callable[[Transaction], T]) -> T:
        with self.state.transaction(self._now_s) as transaction:
            result = self._act(act, transaction)
        for placement in (*transaction.runs_to_start, *transaction.runs_to_limit):
            self._begun += 1
            heapq.heappush(self._ends, (placement.run.ends_s, self._begun, placement.run.id))
        for event in transaction.events:
            for at_s in _times(event):
                if at_s > self._now_s:
                    heapq.heappush(self._wakes, at_s)
        self._publish(transaction)
        return result

    def _end_due(self, transaction: Transaction) -> None:
        while self._ends and self._ends[0][0] <= self._now_s:
            _, _, run_id = heapq.heappop(self._ends)
            key = self.state.pod_of_run.get(run_id)
            if key is not None and self.state.pods[key].run.ends_s <= self._now_s:  # or its time limit was raised
                transitions.run_ended(transaction, run_id, simulated_exit(self.state.pods[key].run))


def _times(event: Event) -> tuple[int, ...]:
    """When a workload may be tried or expires, or a reservation begins or ends."""
    if isinstance(event, WorkloadChanged):
        return event.workload.not_before_s, event.workload.expires_s
    if isinstance(event, ReservationChanged):
        return event.reservation.start_s, event.reservation.end_s
    return ()


if TYPE_CHECKING:
    _: type[Cluster] = SimulatedCluster
