"""Check nominations: which of them can no longer be used, and what their workloads need besides them.

The space of a nomination that is never used would stay idle forever. Room is made again for a workload that loses its
nominations.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kaiwo.decide.cycle_state import CycleInput, CycleState, PodKey, earliest_s
from kaiwo.decide.obstacles.find_obstacles import is_overdrawn
from kaiwo.decide.placement.pod_affinity import nomination_holds
from kaiwo.decide.placement.shape_scores import allowed
from kaiwo.model.plan import Nomination
from kaiwo.model.request import Request
from kaiwo.model.workload import find_role, is_pod_of
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.backlog import WaitingClass, needs_to_make_room_for
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import USABLE
from kaiwo.snapshot.queue_table import ResourceVector
from kaiwo.snapshot.working_copy import WorkingCopy


class LostNominations(NamedTuple):
    pods: tuple[PodKey, ...] = ()
    look_again_s: int = 0  # when the next place of a lost gang member is given up


def lost_nominations(cycle: CycleInput, cycle_state: CycleState) -> LostNominations:
    if not cycle.state.nominations:
        return LostNominations()
    state, working = cycle.state, cycle_state.working
    lost = {*_on_lost_nodes(state, working), *_never_released(state, working), *_unpaid(state, working)}
    lost.update(_where_not_allowed(cycle, cycle_state))
    expired, look_again_s = _expired(cycle)
    return LostNominations(tuple(sorted(lost.union(expired))), look_again_s)


def kept_until_s(nomination: Nomination, keep_s: int) -> int:
    """Until when the place of a lost gang member is kept for its replacement."""
    return nomination.lost_s + keep_s


def is_fully_nominated(cycle: CycleInput, waiting_class: WaitingClass, given_up: Iterable[PodKey]) -> bool:
    """All that it needs is nominated. If some was just given up, the next cycle decides."""
    name = waiting_class.signature.nominated_for
    if not name:
        return False
    needed = sum(need.needed for need in needs_to_make_room_for(waiting_class))
    # Places for pods that are made later do not help those that wait.
    workload = cycle.state.workloads[name]
    own = sum(is_pod_of(workload, pod) for pod in cycle.state.nominations[name])
    return own >= needed or any(workload == name for workload, _ in given_up)


def unpaid_charge(cycle: CycleInput, cycle_state: CycleState, waiting_class: WaitingClass) -> ResourceVector:
    """What its queue is still to be charged for a workload of this class: nominations are charged already."""
    charge, name = cycle_state.charges.least_with_models(waiting_class), waiting_class.signature.nominated_for
    if not name:
        return charge
    paid = _charge_of(cycle_state.working, cycle.state.nominations[name].values()).tolist()
    return tuple(max(0, need - has) for need, has in zip(charge, paid, strict=True))


def _expired(cycle: CycleInput) -> tuple[list[PodKey], int]:
    """Places of lost gang members whose replacement did not come in time, or cannot; and when to look again."""
    keep_s, expired, look_again_s = cycle.policy.keep_lost_place_s, list[PodKey](), 0
    for workload, pod in cycle.state.lost_places:
        nomination = cycle.state.nominations[workload][pod]
        until_s = kept_until_s(nomination, keep_s)
        owner = cycle.state.workloads.get(workload)
        is_held = owner is not None and owner.held
        if until_s <= cycle.now_s or nomination.due_s > until_s or is_held:
            expired.append((workload, pod))
        else:
            look_again_s = earliest_s(look_again_s, until_s)
    return expired, look_again_s


def _on_lost_nodes(state: ClusterState, working: WorkingCopy) -> list[PodKey]:
    """Nominations on nodes or devices that are gone or broken, or where anti-affinity now excludes the pod."""
    nodes, gpus = working.nodes, working.gpus
    lost = []
    for workload, kept in state.nominations.items():
        for pod, nomination in kept.items():
            row = nodes.row.get(nomination.node)
            columns = [] if row is None else [nodes.column[row].get(share.gpu) for share in nomination.devices]
            is_gone = row is None or any(column is None or not gpus[row, USABLE, column] for column in columns)
            if is_gone or (row is not None and not nomination_holds(working, nomination.neighbours, row)):
                lost.append((workload, pod))
    return lost


def _where_not_allowed(cycle: CycleInput, cycle_state: CycleState) -> list[PodKey]:
    """Nominations on nodes that no longer pass the static filters. Equal pods are checked together."""
    state, rows = cycle.state, cycle_state.working.nodes.row
    by_want: dict[Request, list[tuple[PodKey, int]]] = defaultdict(list)
    for name, kept in state.nominations.items():
        if (workload := state.workloads.get(name)) is None:
            continue  # the workload is not known yet
        for pod, nomination in kept.items():
            # Where no pod of a role is left, its request is unknown until the replacement comes.
            role = find_role(workload, pod) if nomination.node in rows else None
            if role is not None:
                want = state.request_of(workload, role)
                by_want[want].append(((name, pod), rows[nomination.node]))
    lost = []
    for want, places in by_want.items():
        there = np.array([row for _, row in places], np.intp)
        may = allowed(cycle_state.working.view, want, there, cycle.plugins.static_filters).tolist()
        lost += [each for (each, _), is_allowed in zip(places, may, strict=True) if not is_allowed]
    return lost


def _never_released(state: ClusterState, working: WorkingCopy) -> list[PodKey]:
    """Nominations whose space other pods hold while none of them is leaving: an eviction was lost or refused."""
    left = {state.pods[workload][pod].node for workload, pod in state.releasing}
    return [
        (workload, pod)
        for workload, kept in state.nominations.items()
        for pod, nomination in kept.items()
        # Work that fills the place of a lost member until its replacement is due is stopped in time: see `backfill`.
        if not nomination.due_s and nomination.node not in left and is_overdrawn(working.view, nomination)
    ]


def _unpaid(state: ClusterState, working: WorkingCopy) -> list[PodKey]:
    """Nominations over a queue's lowered limit or quota: the least important workloads lose theirs first."""
    used, non_preemptible = working.all_used.copy(), working.all_non_preemptible.copy()
    lost: list[PodKey] = []
    found = [state.workloads[name] for name in state.nominations if name in state.workloads]
    for workload in sorted(found, key=lambda each: (each.priority, -each.submitted_s, each.name)):
        row = working.queues.row.get(workload.queue)
        if row is None:
            continue
        kept = state.nominations[workload.name]
        charge = _charge_of(working, kept.values())
        bounds = [(used, bound) for bound in working.queues.limits[row]]
        if not workload.preemptible:
            bounds += [(non_preemptible, bound) for bound in working.queues.quotas[row]]
        if any(charge[column] and table[above, column] > most for table, (above, column, most) in bounds):
            lost += [(workload.name, pod) for pod in kept]
            path = list(working.queues.path[row])
            used[path] -= charge
            non_preemptible[path] -= 0 if workload.preemptible else charge
    return lost


def _charge_of(working: WorkingCopy, nominations: Iterable[Nomination]) -> IntArray:
    charges = []
    for each in nominations:
        milli = sum(share.charge_milli for share in each.devices)
        models = working.view.milli_by_model(each.node, each.devices) or (0,) * len(working.queues.models)
        charges.append((milli, each.cpu_milli, each.memory_mib, *models))
    together: IntArray = np.sum(np.array(charges, np.int64), axis=0)
    return together
