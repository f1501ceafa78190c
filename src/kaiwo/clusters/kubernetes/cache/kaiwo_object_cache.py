"""Cache queues, reservations and topologies by name: the last readable version, and why the current one is not.

A readable version stays in force when the next one cannot be read.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from kaiwo.clusters.kubernetes.cache.gang_index import GangIndex
from kaiwo.clusters.kubernetes.cache.queue_history import QueueHistory
from kaiwo.clusters.queue_access import queues_of_namespaces
from kaiwo.model.events import (
    Event,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
    TopologyChanged,
    TopologyGone,
)
from kaiwo.model.network.topology import Topology
from kaiwo.model.queue import DEFAULT_QUEUE, UNBOUNDED_DEFAULT_QUEUE, Queue, implicit_default_queue
from kaiwo.model.reservation import Reservation

T = TypeVar("T")


class LastReadable(Generic[T]):
    """Objects of one kind. When a fault appears or is corrected, all units are touched: some may wait because of it."""

    def __init__(self, gang_index: GangIndex) -> None:
        self.items: dict[str, T] = {}
        self.faults: dict[str, str] = {}
        self._gang_index = gang_index

    def upsert_fault(self, name: str, fault: str) -> bool:
        """The current version cannot be read. Returns False if that was known."""
        is_new = self.faults.get(name) != fault
        if is_new:
            self.faults[name] = fault
            self._gang_index.touch_all()
        return is_new

    def _put(self, name: str, item: T) -> bool:
        self._clear_fault(name)
        is_new = self.items.get(name) != item
        self.items[name] = item
        return is_new

    def _pop(self, name: str) -> bool:
        self._clear_fault(name)
        return self.items.pop(name, None) is not None

    def _clear_fault(self, name: str) -> None:
        if self.faults.pop(name, None) is not None:
            self._gang_index.touch_all()


class QueueCache(LastReadable[Queue]):
    """KaiwoQueues, and the default queue, which always exists."""

    def __init__(self, gang_index: GangIndex) -> None:
        super().__init__(gang_index)
        self.items[DEFAULT_QUEUE] = UNBOUNDED_DEFAULT_QUEUE
        self.generations: dict[str, int] = {}  # of the queues that are objects of the cluster
        self._of_namespace: dict[str, str] = {}
        self.history = QueueHistory()
        self.on_change: Callable[[], None] = lambda: None

    def queue_of(self, namespace: str) -> str:
        """The queue of work that names none."""
        return self._of_namespace.get(namespace, DEFAULT_QUEUE)

    def upsert(self, queue: Queue) -> list[Event]:
        is_added = queue.name not in self.items
        if not self._put(queue.name, queue):
            return []
        if self._have_namespaces_changed() or is_added:
            self._gang_index.touch_all()  # work that names no queue, and Kueue labels that may name this one
        self.on_change()
        return [QueueChanged(queue), *self._update_default()]

    def delete(self, name: str) -> list[Event]:
        self.generations.pop(name, None)
        self.history.delete(name)
        if name == DEFAULT_QUEUE:
            return self.upsert(implicit_default_queue(self.items))
        if not self._pop(name):
            return []
        self._have_namespaces_changed()
        self._gang_index.touch_all()
        self.on_change()
        return [QueueGone(name), *self._update_default()]

    def _have_namespaces_changed(self) -> bool:
        before, self._of_namespace = self._of_namespace, queues_of_namespaces(self.items)
        return self._of_namespace != before

    def _update_default(self) -> list[Event]:
        """As long as no object defines it, what it may have depends on whether there are others."""
        fitting = implicit_default_queue(self.items)
        return self.upsert(fitting) if self.items[DEFAULT_QUEUE].is_implicit else []


class ReservationCache(LastReadable[Reservation]):
    def upsert(self, reservation: Reservation) -> list[Event]:
        return [ReservationChanged(reservation)] if self._put(reservation.name, reservation) else []

    def delete(self, name: str) -> list[Event]:
        return [ReservationGone(name)] if self._pop(name) else []


class TopologyCache(LastReadable[Topology]):
    def upsert(self, topology: Topology) -> list[Event]:
        return [TopologyChanged(topology)] if self._put(topology.name, topology) else []

    def delete(self, name: str) -> list[Event]:
        return [TopologyGone(name)] if self._pop(name) else []
