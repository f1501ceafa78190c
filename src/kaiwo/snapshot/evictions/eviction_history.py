"""Which workloads were evicted for others, and when: for preemption cool-downs and the eviction budgets of queues."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kaiwo.model.events import StoppedForOthers
from kaiwo.model.plan import DISPLACING_CAUSES, Plan
from kaiwo.model.queue import Queue

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState

HOUR_S = 3600


def stops_of_plan(plan: Plan, now_s: int, path_of: Callable[[str], Sequence[Queue]]) -> Iterable[StoppedForOthers]:
    """The workloads that a plan evicts for others, and the queues whose budget counts them."""
    moves = {(each.workload, each.pod) for each in plan.nominations}
    lost: dict[str, bool] = {}
    for each in plan.evictions:
        if each.cause in DISPLACING_CAUSES:
            lost[each.workload] = lost.get(each.workload, False) or (each.workload, each.pod) not in moves
    for name in sorted(lost):
        counted = tuple(queue.name for queue in path_of(name) if queue.fairness.evictions_per_hour is not None)
        yield StoppedForOthers(name, now_s, counted, not lost[name])


def queue_path_of(state: "ClusterState", workload: str) -> Sequence[Queue]:
    queues = state.queues
    row = queues.row.get(state.workloads[workload].queue)
    return [queues.queues[above] for above in queues.path[row]] if row is not None else []


def record_stop(state: "ClusterState", event: StoppedForOthers) -> None:
    """Keep the last stop of each workload, and those of each queue's last hour, in whatever order they arrive."""
    known = state.last_stop.get(event.workload)
    if not event.is_moved and (known is None or known.at_s <= event.at_s):
        state.last_stop[event.workload] = event
        state.started_overdue.discard(event.workload)
    for queue in event.queues:
        stops = sorted({*state.recent_stops.get(queue, ()), event}, key=lambda each: (each.at_s, each.workload))
        state.recent_stops[queue] = tuple(each for each in stops if each.at_s > stops[-1].at_s - HOUR_S)


def recorded_stops(state: "ClusterState") -> list[StoppedForOthers]:
    found = {(each.at_s, each.workload): each for each in state.last_stop.values()}
    found |= {(each.at_s, each.workload): each for stops in state.recent_stops.values() for each in stops}
    return [found[key] for key in sorted(found)]
