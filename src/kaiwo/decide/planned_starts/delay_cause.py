"""Find out what delays a planned start: a lost node, the work that holds its place, or one planned before it.

In:    the planned start as it was, the workloads planned before it.   Out: one cause, and the workload or node.
"""

from collections.abc import Sequence

from kaiwo.decide.planned_starts.backfill import outranks
from kaiwo.model.planned_start import DelayCause, PlannedPod, PlannedStart, expected_run_s
from kaiwo.model.workload import RELEASING_PHASES, Pod, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import USABLE, NodeTable


def delay_cause(
    state: ClusterState, now_s: int, planned: PlannedStart, ahead: Sequence[Workload]
) -> tuple[DelayCause, str]:
    """A lost node first, then what holds the place, then a planned start before it."""
    for place in planned.places:
        if _is_lost(state.nodes, place):
            return DelayCause.NODE, place.node
    for place in planned.places:
        for pod in _holders(state, place):
            found = _by_holder(state, now_s, planned, pod)
            if found is not None:
                return found
    if ahead:
        return DelayCause.OUTRANKED, ahead[-1].name
    return DelayCause.TAKEN, ""


def _is_lost(nodes: NodeTable, place: PlannedPod) -> bool:
    row = nodes.row.get(place.node)
    if row is None or not nodes.schedulable[row]:
        return True
    columns = [nodes.column[row].get(share.gpu) for share in place.devices]
    return any(column is None or not nodes.gpus[row, USABLE, column] for column in columns)


def _holders(state: ClusterState, place: PlannedPod) -> list[Pod]:
    gpus = {share.gpu for share in place.devices}
    held = state.allocations_on.get(place.node, {})
    pods = [held[key] for key in sorted(held)]
    return [
        pod
        for pod in pods
        if isinstance(pod, Pod)
        and pod.phase not in RELEASING_PHASES
        and not gpus.isdisjoint(share.gpu for share in pod.devices)
    ]


def _by_holder(state: ClusterState, now_s: int, planned: PlannedStart, pod: Pod) -> tuple[DelayCause, str] | None:
    """A pod on its place that will not be gone in time; None: it ends on time."""
    workload = state.workloads.get(pod.workload)
    if workload is None:
        return DelayCause.TAKEN, pod.workload
    run_s = expected_run_s(workload)
    end_s = pod.since_s + run_s
    if run_s and now_s < end_s <= planned.start_s:
        return None
    if run_s and end_s <= now_s:
        return DelayCause.OVERRAN, pod.workload
    if outranks(workload, state.workloads[planned.workload]):
        return DelayCause.OUTRANKED, pod.workload
    return DelayCause.TAKEN, pod.workload
