"""Space that is kept for somebody: what of it can be used no longer, and what they need beside it.

In:    the desk.   Out: whose space (workload, pod) is given up; what room must still be made for.
Nobody would ever start in lost space, and nobody else could: who loses some of theirs has room made for the rest anew.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from kaiwo.decide.cycle_state import CycleState
from kaiwo.decide.obstacles.find_obstacles import is_overdrawn
from kaiwo.decide.placement.pod_affinity import keeps_its_place
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import role_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import WaitingClass, needs_to_make_room_for
from kaiwo.snapshot.node_table import USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy

Kept = tuple[str, str]  # the workload and the pod


def lost_space(desk: CycleState) -> list[Kept]:
    """All that is lost, in order."""
    if not desk.state.nominations:
        return []
    return sorted({*_on_lost_nodes(desk), *_where_they_may_not_go(desk), *_nobody_leaves(desk), *_unpaid(desk)})


def has_its_space(desk: CycleState, found: WaitingClass) -> bool:
    """All that it needs is kept for it. Where some of it was lost just now, the next cycle sees what is left."""
    name = found.signature.nominated_for
    if not name:
        return False
    needed = sum(needed for _, _, needed in needs_to_make_room_for(found))
    return len(desk.state.nominations[name]) >= needed or any(workload == name for workload, _ in desk.given_up)


def claim_beside(desk: CycleState, found: WaitingClass) -> ResourceVector:
    """What its queue must still pay for a workload of this class: what is kept for it is paid for."""
    claim, name = desk.claim_of(found), found.signature.nominated_for
    if not name:
        return claim
    paid = _charge_of_all(desk.working, desk.state.nominations[name].values()).tolist()
    return tuple(max(0, need - has) for need, has in zip(claim, paid, strict=True))


def _on_lost_nodes(desk: CycleState) -> list[Kept]:
    """On nodes or devices that are gone or no longer work, or where somebody came too near."""
    nodes, gpus = desk.working.nodes, desk.working.gpus
    lost = []
    for workload, kept in desk.state.nominations.items():
        for pod, nomination in kept.items():
            row = nodes.row.get(nomination.node)
            columns = [] if row is None else [nodes.column[row].get(share.gpu) for share in nomination.devices]
            is_gone = row is None or any(column is None or not gpus[row, USABLE, column] for column in columns)
            if is_gone or (row is not None and not keeps_its_place(desk.working, nomination.neighbours, row)):
                lost.append((workload, pod))
    return lost


def _where_they_may_not_go(desk: CycleState) -> list[Kept]:
    """On nodes that were cordoned, tainted or labelled otherwise since, or are not ready. Equal pods are one look."""
    state, rows = desk.state, desk.working.nodes.row
    by_want: dict[Request, list[tuple[Kept, int]]] = defaultdict(list)
    for name, kept in state.nominations.items():
        if (workload := state.workloads.get(name)) is None:
            continue  # it was kept for somebody who is not known yet
        for pod, nomination in kept.items():
            if nomination.node in rows:
                want = state.request_of(workload, role_of(workload, pod))
                by_want[want].append(((name, pod), rows[nomination.node]))
    lost = []
    for want, places in by_want.items():
        there = np.array([row for _, row in places], np.intp)
        may = allowed(desk.working, want, there, desk.active.static_filters).tolist()
        lost += [each for (each, _), is_allowed in zip(places, may, strict=True) if not is_allowed]
    return lost


def _nobody_leaves(desk: CycleState) -> list[Kept]:
    """Where others hold it, too, and none of them is told to go: whoever decided that died before, or was refused."""
    state = desk.state
    left = {state.pods[workload][pod].node for workload, pod in state.releasing}
    return [
        (workload, pod)
        for workload, kept in state.nominations.items()
        for pod, nomination in kept.items()
        if nomination.node not in left and is_overdrawn(desk.working, nomination)
    ]


def _unpaid(desk: CycleState) -> list[Kept]:
    """What their queues may pay for no longer, since somebody lowered a bound: the least important lose it first."""
    state, working = desk.state, desk.working
    used, fixed = working.all_used.copy(), working.all_non_preemptible.copy()
    lost: list[Kept] = []
    found = [state.workloads[name] for name in state.nominations if name in state.workloads]
    for workload in sorted(found, key=lambda each: (each.priority, -each.submitted_s, each.name)):
        row = working.queues.row.get(workload.queue)
        if row is None:
            continue
        kept = state.nominations[workload.name]
        charge = _charge_of_all(working, kept.values())
        bounds = [(used, bound) for bound in working.queues.limits[row]]
        bounds += [(fixed, bound) for bound in working.queues.quotas[row]] if not workload.preemptible else []
        if any(charge[column] and table[above, column] > most for table, (above, column, most) in bounds):
            lost += [(workload.name, pod) for pod in kept]
            path = list(working.queues.path[row])
            used[path] -= charge
            fixed[path] -= 0 if workload.preemptible else charge
    return lost


def _charge_of_all(working: WorkingCopy, kept: Iterable[Nomination]) -> IntArray:
    together: IntArray = np.sum([_charge(working, each) for each in kept], axis=0)
    return together


def _charge(working: WorkingCopy, kept: Nomination) -> IntArray:
    milli = sum(share.milli for share in kept.devices)
    models = working.milli_by_model(kept.node, kept.devices) or (0,) * len(working.queues.models)
    return np.array((milli, kept.cpu_milli, kept.memory_mib, *models), np.int64)
