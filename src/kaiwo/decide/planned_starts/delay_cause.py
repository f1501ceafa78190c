"""Say who or what is to blame when a planned start becomes later.

In:    the desk, the promise as it was, and those before it.   Out: one cause, and the workload or node it names.
"""

from collections.abc import Sequence

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.planned_starts.backfill import outranks
from kaiwo.model.planned_start import Delay, PlannedPod, PlannedStart, known_run_s
from kaiwo.model.workload import LEAVING, Pod, Workload
from kaiwo.snapshot.node_table import USABLE


def blame(desk: CycleState, promise: PlannedStart, ahead: Sequence[Workload]) -> tuple[Delay, str]:
    """A lost node first, then who holds the place, then a promise before it."""
    for place in promise.places:
        if _is_lost(desk, place):
            return Delay.NODE, place.node
    for place in promise.places:
        for pod in _holders(desk, place):
            found = _of_holder(desk, promise, pod)
            if found is not None:
                return found
    if ahead:
        return Delay.OUTRANKED, ahead[-1].name
    return Delay.TAKEN, ""


def _is_lost(desk: CycleState, place: PlannedPod) -> bool:
    nodes = desk.working.nodes
    row = nodes.row.get(place.node)
    if row is None or not nodes.schedulable[row]:
        return True
    columns = [nodes.column[row].get(share.gpu) for share in place.devices]
    return any(column is None or not nodes.gpus[row, USABLE, column] for column in columns)


def _holders(desk: CycleState, place: PlannedPod) -> list[Pod]:
    gpus = {share.gpu for share in place.devices}
    held = desk.state.allocations_on.get(place.node, {})
    pods = [held[key] for key in sorted(held)]
    return [
        pod
        for pod in pods
        if isinstance(pod, Pod) and pod.phase not in LEAVING and not gpus.isdisjoint(share.gpu for share in pod.devices)
    ]


def _of_holder(desk: CycleState, promise: PlannedStart, pod: Pod) -> tuple[Delay, str] | None:
    """Whoever is there and will not be gone in time."""
    workload = desk.state.workloads.get(pod.workload)
    if workload is None:
        return Delay.TAKEN, pod.workload
    run_s = known_run_s(workload)
    end_s = pod.since_s + run_s
    if run_s and desk.working.now_s < end_s <= promise.start_s:
        return None  # it is on time
    if run_s and end_s <= desk.working.now_s:
        return Delay.OVERRAN, pod.workload
    if outranks(workload, desk.state.workloads[promise.workload]):
        return Delay.OUTRANKED, pod.workload
    return Delay.TAKEN, pod.workload
