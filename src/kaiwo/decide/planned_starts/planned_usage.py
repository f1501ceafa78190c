"""What the promises of a cycle take of nodes, and what their queues pay for them.

In:    the desk.   Out: promises in their order, their space, their dues.
"""

from collections.abc import Iterator

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.planned_starts.future_capacity import PlannedUsage, take_of, takes_of_spans
from kaiwo.decide.planned_starts.future_quota import QueueCharge
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Workload
from kaiwo.snapshot.capacity_timeline import NEVER, ReservedSpan
from kaiwo.snapshot.cluster_state import ClusterState


def in_order(state: ClusterState) -> list[PlannedStart]:
    """Who was promised first goes first; in one queue the more important before that."""
    oldest = sorted(state.planned_starts.values(), key=lambda each: (each.made_s, each.workload))
    lines: dict[str, list[PlannedStart]] = {}
    for each in oldest:
        lines.setdefault(_queue_of(state, each), []).append(each)
    turns: dict[str, Iterator[PlannedStart]] = {
        queue: iter(sorted(line, key=lambda each: -_priority_of(state, each))) for queue, line in lines.items()
    }
    return [next(turns[_queue_of(state, each)]) for each in oldest]


def takes_of(desk: CycleState, promises: list[PlannedStart]) -> list[PlannedUsage]:
    """Their space, from their start or from now on; those whose place is gone take nothing."""
    found = [take_of(each, desk.state, max(each.start_s, desk.working.now_s)) for each in promises]
    return [take for take in found if take is not None]


def reserved_for_others(desk: CycleState, spans: tuple[ReservedSpan, ...], workload: Workload) -> list[PlannedUsage]:
    """The devices of reservations that a workload may not use, as space that others have."""
    if not spans:
        return []
    passes = desk.state.reservations.passes_of(workload, desk.state.queue_objects)
    return takes_of_spans(spans, passes, desk.working.nodes)


def due_of(desk: CycleState, promise: PlannedStart) -> QueueCharge:
    """What its queue pays for it, from its start to its end."""
    found, _ = desk.state.backlog.find(promise.workload)
    end_s = promise.start_s + promise.run_s if promise.run_s else NEVER
    return desk.due_of(found)._replace(start_s=promise.start_s, end_s=end_s)


def workload_of(desk: CycleState, promise: PlannedStart) -> Workload:
    """Whose promise it is."""
    return desk.state.workloads[promise.workload]


def _queue_of(state: ClusterState, promise: PlannedStart) -> str:
    workload = state.workloads.get(promise.workload)
    return workload.queue if workload is not None else ""


def _priority_of(state: ClusterState, promise: PlannedStart) -> int:
    workload = state.workloads.get(promise.workload)
    return workload.priority if workload is not None else 0
