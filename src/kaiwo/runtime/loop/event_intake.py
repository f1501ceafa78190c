"""Apply events to the cluster state; an object that cannot be applied is left out and does not stop the others.

An object is never half applied: one that is left out is removed from the state, counted and logged.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kaiwo.model import events as kinds
from kaiwo.model.events import Event
from kaiwo.model.node import Node
from kaiwo.runtime.log import emit
from kaiwo.runtime.loop.loop_metrics import Health, describe_error
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import EditableNodeTable


class EventIntake:
    def __init__(self, state: ClusterState, health: Health) -> None:
        self._state, self._health = state, health

    def apply(self, events: Sequence[Event]) -> list[Event]:
        """The events that were applied; for an object that was left out, its removal."""
        applied = (self._apply_one(event) for event in events)
        return [event for event in applied if event is not None]

    def requeue_moved(self, most: int) -> bool:
        """Requeue workloads in the state; one that raises stays out of the backlog."""
        try:
            return self._state.requeue_moved(most)
        except Exception as error:  # one workload must not stop the scheduler: it waits, and the log says so
            self._leave_out("a workload", error)
            return bool(self._state.to_requeue)

    def _apply_one(self, event: Event) -> Event | None:
        try:
            if isinstance(event, kinds.NodeChanged):
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
        except Exception as error:  # nothing more can be done: the cycles continue without it
            self._leave_out(_label(gone), error)
            return None

    def _leave_out(self, what: str, error: Exception) -> None:
        self._health.left_out += 1
        emit("left-out", level="error", what=what, error=describe_error(error), left_out=self._health.left_out)


def _check_row(node: Node) -> None:
    """All node rows are built together later, where it would be unknown which node is faulty. 22 us a node."""
    EditableNodeTable({node.name: node}).write_node(node, (), 0)


_REMOVALS: dict[type, Callable[[Any], Event]] = {
    kinds.NodeChanged: lambda event: kinds.NodeGone(event.node.name),
    kinds.QueueChanged: lambda event: kinds.QueueGone(event.queue.name),
    kinds.WorkloadChanged: lambda event: kinds.WorkloadGone(event.workload.name),
    kinds.PodChanged: lambda event: kinds.PodGone(event.pod.workload, event.pod.name),
    kinds.NominationChanged: lambda event: kinds.NominationGone(event.nomination.workload, event.nomination.pod),
    kinds.PlannedStartChanged: lambda event: kinds.PlannedStartGone(event.promise.workload),
    kinds.ReservationChanged: lambda event: kinds.ReservationGone(event.reservation.name),
    kinds.TopologyChanged: lambda event: kinds.TopologyGone(event.topology.name),
}


def _removal_of(event: Event) -> Event:
    """The event that removes its object; an event without an object is its own removal."""
    removal = _REMOVALS.get(type(event))
    return event if removal is None else removal(event)


def _label(event: Event) -> str:
    gone = _removal_of(event)
    names = [value for field in gone.__struct_fields__ if isinstance(value := getattr(gone, field), str)]
    return " ".join((type(event).__name__, *names))[:300]
