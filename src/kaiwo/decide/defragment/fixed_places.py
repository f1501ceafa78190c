"""Check fixed places: whether a pod may be on exactly this node and these devices, as things are in a working copy.

In:    a cycle state, in which pods were released on trial.   Out: yes or no; with yes, the place is taken.
"""

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.placement.levels import NO_LEVEL, constraint_levels
from kaiwo.decide.placement.queue_limits import within_limits
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.network.constraint import CONSOLIDATED
from kaiwo.model.network.level_groups import levels_of, role_numbers
from kaiwo.model.workload import ACTIVE_PHASES, Pod, Workload, find_role, pod_index, role_name
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import NodeTable
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy


def may_be_at(
    cycle_state: CycleState, state: ClusterState, workload: Workload, pod: Pod, is_charged: bool = True
) -> bool:
    """Whether the pod may be where it says, and has room there; then it is placed. `is_charged`: its queue must be
    able to pay for it, too: it is a pod that waited."""
    working, queue = cycle_state.working, cycle_state.working.queues.row.get(workload.queue)
    row, role = working.nodes.row.get(pod.node), find_role(workload, pod.name)
    if queue is None or row is None or role is None:
        return False
    want = state.request_of(workload, role)
    if is_charged and not within_limits(working, queue, charge_at(working, pod), not workload.preemptible):
        return False
    if cycle_state.placer.slots(-1, want)[row] < 1 or _takes_reserved(cycle_state, want.passes, want.holds_s, pod, row):
        return False
    return working.restore(pod, queue)


def charge_at(working: WorkingCopy, pod: Pod) -> ResourceVector:
    """What its queue pays for a pod on its devices."""
    milli = sum(share.charge_milli for share in pod.devices)
    models = working.view.milli_by_model(pod.node, pod.devices) if working.queues.models else ()
    return (milli, pod.cpu_milli, pod.memory_mib, *models)


def pod_at(pod: Pod, node: str, devices: tuple[Share, ...]) -> Pod:
    return replace(pod, node=node, devices=devices)


def keeps_levels(
    nodes: NodeTable,
    state: ClusterState,
    workload: Workload,
    places: dict[str, str],
    gone: frozenset[str] = frozenset(),
) -> bool:
    """Whether every required level holds once these pods of the workload are on these nodes. The pods in `gone` count
    as leaving; all others stay where they are."""
    levels = levels_of(workload)
    if levels is None or not levels.requires:
        return True
    numbers, at = role_numbers(workload), dict[str, str]()
    for name, pod in state.pods.get(workload.name, {}).items():
        if pod.phase in ACTIVE_PHASES and name not in gone:
            at[name] = pod.node
    at |= {name: kept.node for name, kept in state.nominations.get(workload.name, {}).items() if name not in at}
    at |= places
    domains: dict[tuple[object, int], set[int]] = {}
    for name, node in at.items():
        number, row = numbers.get(role_name(name)), nodes.row.get(node)
        if number is None or row is None:
            return False
        for key in levels.parts_of(number, pod_index(name)):
            found = constraint_levels(nodes, levels.constraint(key), CONSOLIDATED)
            if found.unknown:
                return False
            if found.required != NO_LEVEL:
                domain = int(found.levels[found.required].domain_of_node[row])
                domains.setdefault((key, found.required), set()).add(domain)
    return all(len(found) == 1 and -1 not in found for found in domains.values())


def _takes_reserved(cycle_state: CycleState, passes: tuple[str, ...], holds_s: int, pod: Pod, row: int) -> bool:
    view = cycle_state.working.view
    if view.reservations is None or not pod.devices:
        return False
    column = view.nodes.column[row]
    columns = [column[share.gpu] for share in pod.devices if share.gpu in column]
    return bool(np.any(view.reservations.closed(passes, holds_s)[row, columns]))
