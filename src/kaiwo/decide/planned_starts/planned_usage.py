"""What planned starts use of nodes, and what their queues pay for them.

In:    planned starts.   Out: their order, their space, their charges.
"""

from collections.abc import Iterable, Iterator

from kaiwo.decide.cycle_state import CycleInput, CycleState
from kaiwo.decide.placement.class_charges import QueueCharge
from kaiwo.decide.planned_starts.future_capacity import PlannedUsage, usage_of, usage_of_reservations
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.workload import Workload
from kaiwo.snapshot.capacity_timeline import NEVER, ReservedSpan
from kaiwo.snapshot.cluster_state import ClusterState


def in_order(state: ClusterState) -> list[PlannedStart]:
    """The oldest first; in one queue the more important before that."""
    oldest = sorted(state.planned_starts.values(), key=lambda each: (each.made_s, each.workload))
    lines: dict[str, list[PlannedStart]] = {}
    for each in oldest:
        lines.setdefault(_queue_of(state, each), []).append(each)
    turns: dict[str, Iterator[PlannedStart]] = {
        queue: iter(sorted(line, key=lambda each: -_priority_of(state, each))) for queue, line in lines.items()
    }
    return [next(turns[_queue_of(state, each)]) for each in oldest]


def usages_of(cycle: CycleInput, planned: Iterable[PlannedStart]) -> list[PlannedUsage]:
    """Their space, from their start or from now on; a planned start whose place is gone uses nothing."""
    found = [usage_of(each, cycle.state, max(each.start_s, cycle.now_s)) for each in planned]
    return [usage for usage in found if usage is not None]


def reserved_for_others(cycle: CycleInput, spans: tuple[ReservedSpan, ...], workload: Workload) -> list[PlannedUsage]:
    """The devices of reservations that a workload may not use."""
    if not spans:
        return []
    state = cycle.state
    return usage_of_reservations(spans, state.reservations.passes_of(workload, state.queue_objects), state.nodes)


def charge_of_start(cycle: CycleInput, free: CycleState, planned: PlannedStart) -> QueueCharge:
    """What its queue pays for it, from its start to its end."""
    found, _ = cycle.state.backlog.find(planned.workload)
    end_s = planned.start_s + planned.run_s if planned.run_s else NEVER
    return free.charges.queue_charge(found)._replace(start_s=planned.start_s, end_s=end_s)


def _queue_of(state: ClusterState, planned: PlannedStart) -> str:
    workload = state.workloads.get(planned.workload)
    return workload.queue if workload is not None else ""


def _priority_of(state: ClusterState, planned: PlannedStart) -> int:
    workload = state.workloads.get(planned.workload)
    return workload.priority if workload is not None else 0
