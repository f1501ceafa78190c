"""Take events into the picture, so that one that cannot be taken in stops nobody else.

In:    a picture and events.   Out: the events that are in it; what was left out is counted and logged.
Never: leaves half of an object in the picture: what is left out is gone from it.
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
from kaiwo.runtime.loop.health import Health, words_of
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable


class Intake:
    """One picture's door."""

    def __init__(self, state: ClusterState, health: Health) -> None:
        self._state, self._health = state, health

    def hear(self, events: Sequence[Event]) -> list[Event]:
        """The events that the picture was patched with: for one that was left out, that its object is gone."""
        heard = (self._take(event) for event in events)
        return [event for event in heard if event is not None]

    def seat(self, most: int) -> bool:
        """As the picture's. A workload for which there is no place stays out of line."""
        try:
            return self._state.requeue_moved(most)
        except Exception as error:  # one workload must not end the product: it waits, and the log says so
            self._leave_out("a workload", error)
            return bool(self._state.to_requeue)

    def _take(self, event: Event) -> Event | None:
        try:
            if isinstance(event, NodeChanged):
                _check_row(event.node)
            self._state.apply_events((event,))
            return event
        except Exception as error:  # one object must not end the product: it is left out, counted and told
            self._leave_out(_shown(event), error)
        gone = _end_of(event)
        if gone is event:
            return None
        try:
            self._state.apply_events((gone,))
            return gone
        except Exception as error:  # nothing more can be done about it: the cycles go on with what there is
            self._leave_out(_shown(gone), error)
            return None

    def _leave_out(self, what: str, error: Exception) -> None:
        self._health.left_out += 1
        emit("left-out", level="error", what=what, error=words_of(error), left_out=self._health.left_out)


def _check_row(node: Node) -> None:
    """The rows of all nodes are built together, later, where nobody can tell which one was wrong. 22 us a node."""
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


def _end_of(event: Event) -> Event:
    """What takes its object away; of an event that brings no object, itself."""
    end = _ENDS.get(type(event))
    return event if end is None else end(event)


def _shown(event: Event) -> str:
    gone = _end_of(event)
    names = [value for field in gone.__struct_fields__ if isinstance(value := getattr(gone, field), str)]
    return " ".join((type(event).__name__, *names))[:300]
