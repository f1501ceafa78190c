"""What time alone changes in the cluster's state: reservations start and end, allocations expire, the clock is set."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from kaiwo.model.events import ClockMoved, PoolsChanged, StartRefused, StoppedForOthers
from kaiwo.model.reservation import NEVER_S
from kaiwo.model.workload import ACTIVE_PHASES

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState

Requeue = Callable[[str, int], None]  # a workload, as of a time


def apply_timed_changes(state: "ClusterState", now_s: int, requeue: Requeue) -> None:
    _apply_reservation_times(state, now_s, requeue)
    state.is_cycle_due = state.is_cycle_due or bool(expired_workloads(state, now_s))
    for name in _past_expiry(state, now_s):
        if state.backlog.is_queued(name):  # from now on it is gated
            state.version += 1
            requeue(name, now_s)


def clock_moved(state: "ClusterState", event: ClockMoved) -> None:
    """The clock was set ahead or back: what was stopped for others stays as long ago; the calendar is read again."""

    def moved(stop: StoppedForOthers) -> StoppedForOthers:
        return replace(stop, at_s=stop.at_s + event.by_s)

    state.last_stop = {name: moved(stop) for name, stop in state.last_stop.items()}
    state.recent_stops = {name: tuple(map(moved, stops)) for name, stops in state.recent_stops.items()}
    for name, refused in state.refused_starts.items():
        state.refused_starts[name] = replace(refused, until_s=refused.until_s + event.by_s)
        state.to_requeue[name] = None
    state.speeds.move_times(event.by_s)
    state.reservations.read_calendar_again()
    state.is_cycle_due = True
    state.retry_all_classes()


def start_refused(state: "ClusterState", event: StartRefused) -> None:
    """A plugin does not let it start before then; at 0 it may be tried again at once."""
    if event.workload in state.workloads:
        if event.until_s:
            state.refused_starts[event.workload] = event
        else:
            state.refused_starts.pop(event.workload, None)
        state.to_requeue[event.workload] = None


def pools_changed(state: "ClusterState", event: PoolsChanged) -> None:
    state.pools = dict(event.pools)
    state.retry_all_classes()


def is_gate_over(state: "ClusterState", name: str, now_s: int) -> bool:
    """Neither its own back-off nor a plugin keeps it from a try any longer."""
    refused = state.refused_starts.get(name)
    if refused is not None and refused.until_s <= now_s:
        del state.refused_starts[name]
        refused = None
    return refused is None and state.workloads[name].not_before_s <= now_s


def expired_workloads(state: "ClusterState", now_s: int) -> list[str]:
    """Workloads whose allocation has expired, and that a plan has not ended or that still run."""
    over = _past_expiry(state, now_s)
    return [name for name in over if name not in state.ended_expired or _has_active_pods(state, name)]


def next_timed_change_s(state: "ClusterState", now_s: int) -> int:
    """When time alone changes something next; 0: never."""
    coming = [at_s for at_s in (state.reservations.next_change_s, *state.expiring.values()) if at_s > now_s]
    soonest = min(coming, default=NEVER_S)
    return soonest if soonest < NEVER_S else 0


def _apply_reservation_times(state: "ClusterState", now_s: int, requeue: Requeue) -> None:
    reservations = state.reservations
    state.refresh_tables()
    if reservations.changes_by(now_s):
        before = reservations.rows(state.nodes)
        reservations.advance_to(now_s)
        state.version += 1
        state.is_cycle_due = True
        state.backlog.try_all = True
        state.nodes.changed[np.union1d(before, reservations.rows(state.nodes))] = state.version
        _requeue_with_new_access(state, now_s, requeue)
    elif (rows := reservations.rows_about_to_change(now_s, state.nodes)) is not None:
        state.version += 1
        state.nodes.changed[rows] = state.version


def _requeue_with_new_access(state: "ClusterState", now_s: int, requeue: Requeue) -> None:
    """A workload that may now use other reservations belongs to another class."""
    reservations, backlog, shapes = state.reservations, state.backlog, state.backlog.shapes
    for name in list(backlog.queued_names()):
        workload = state.workloads[name]
        want = shapes[backlog.class_of(name).needs[0].shape]
        if reservations.access_of(workload, state.queue_objects) != (want.passes, want.holds_s):
            requeue(name, now_s)


def _past_expiry(state: "ClusterState", now_s: int) -> list[str]:
    return sorted(name for name, at_s in state.expiring.items() if at_s <= now_s)


def _has_active_pods(state: "ClusterState", name: str) -> bool:
    return any(pod.phase in ACTIVE_PHASES for pod in state.pods.get(name, {}).values())
