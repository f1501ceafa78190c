"""Apply events to the cluster state; an object that cannot be applied is left out and does not stop the others.

In:    a cluster state and events.   Out: the events that were applied; objects left out are counted and logged.
Never: leaves half of an object in the state: what is left out is removed from it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    NominationChanged,
    NominationGone,
    PlannedStartChanged,
    PlannedStartGone,
    PodChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    ReservationChanged,
    ReservationGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.health import Health, describe_error
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable


class EventIntake:
    """Applies events to one cluster state."""

    def __init__(self, state: ClusterState, health: Health) -> None:
        self._state, self._health = state, health

    def take_in(self, events: Sequence[Event]) -> list[Event]:
        """The events that were applied; for an object that was left out, its removal."""
        heard = (self._take(event) for event in events)
        return [event for event in heard if event is not None]

    def requeue_moved(self, most: int) -> bool:
        """Like the state's own, but a workload that raises stays out of the backlog."""
        try:
            return self._state.requeue_moved(most)
        except Exception as error:  # one workload must not stop the scheduler: it waits, and the log says so
            self._leave_out("a workload", error)
            return bool(self._state.to_requeue)

    def _take(self, event: Event) -> Event | None:
        try:
            if isinstance(event, NodeChanged):
                _check_row(event.node)
            self._state.apply_events((event,))
            return event
        except Exception as error:  # one object must not stop the scheduler: it is left out, counted and logged
            self._leave_out(_label(event), error)
        gone = _removal_of(event)
        if gone is event:
            return None
        try:
            self._state.apply_events((gone,))
            return gone
        except Exception as error:  # nothing more can be done: the cycles go on without it
            self._leave_out(_label(gone), error)
            return None

    def _leave_out(self, what: str, error: Exception) -> None:
        self._health.left_out += 1
        emit("left-out", level="error", what=what, error=describe_error(error), left_out=self._health.left_out)


def _check_row(node: Node) -> None:
    """All node rows are built together later, where a faulty node could not be told from the others. 22 us a node."""
    NodeTable({node.name: node}).write_node(node, (), 0)


_ENDS: dict[type, Callable[[Any], Event]] = {
    NodeChanged: lambda event: NodeGone(event.node.name),
    QueueChanged: lambda event: QueueGone(event.queue.name),
    WorkloadChanged: lambda event: WorkloadGone(event.workload.name),
    PodChanged: lambda event: PodGone(event.pod.workload, event.pod.name),
    NominationChanged: lambda event: NominationGone(event.nomination.workload, event.nomination.pod),
    PlannedStartChanged: lambda event: PlannedStartGone(event.promise.workload),
    ReservationChanged: lambda event: ReservationGone(event.reservation.name),
}


def _removal_of(event: Event) -> Event:
    """The event that removes its object; an event without an object is its own removal."""
    end = _ENDS.get(type(event))
    return event if end is None else end(event)


def _label(event: Event) -> str:
    gone = _removal_of(event)
    names = [value for field in gone.__struct_fields__ if isinstance(value := getattr(gone, field), str)]
    return " ".join((type(event).__name__, *names))[:300]
