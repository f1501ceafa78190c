"""Let reservations begin, hold and end, and let allocations expire.

In:    the desk.   Out: devices picked for reservations of a number of GPUs; evictions of strangers at a start, of the
       owner's work at an end that says so, and of work whose allocation was given until now.
Never: stops work of strangers that may not be preempted. It stays, and the reservation has the device when it is gone.
"""

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.desk import Desk
from kaiwo.decide.reserve_pick import Fleet, is_well_placed, pick
from kaiwo.model.lost_work import lost_gpu_s
from kaiwo.model.plan import Cause, Eviction
from kaiwo.model.reservation import Picked, Reservation
from kaiwo.model.workload import Phase, Pod, Workload, is_enough
from kaiwo.snapshot.moments import expired_work, next_moment_s
from kaiwo.snapshot.reserved_view import Claim, ReservedView, claim_of

UP = (Phase.ASSUMED, Phase.RUNNING)
MOST_SEARCHES = 16  # a cycle: each looks at every GPU of the cluster


def mind_reservations(desk: Desk) -> None:
    """Everything that the time and the reservations ask for, before anybody who waits is looked at."""
    view, book = desk.working.reserved, desk.picture.reserved
    if view is not None:
        view = _pick_places(desk, view)
        for claim in view.claims:
            if view.is_active(claim):
                _clear(desk, view, claim)
    for reservation in book.leaving:
        _end(desk, reservation)
    _expire(desk)
    if at_s := next_moment_s(desk.picture, desk.working.now_s):
        desk.look_again(at_s)


def _pick_places(desk: Desk, view: ReservedView) -> ReservedView:
    """Choose devices where only a number was given; the cycle goes on with the new ones."""
    claims = list(view.claims)
    fleet = Fleet(desk, (claim.reservation for claim in claims))
    for at in _searches(desk, fleet, claims):
        claim = claims[at]
        picked = pick(fleet, claim.reservation)
        if picked != claim.reservation.picked:
            desk.reserved.append(Picked(claim.name, picked))
            claims[at] = claim_of(replace(claim.reservation, picked=picked), desk.working.nodes)
            fleet.moved(claim.reservation, claims[at].reservation)
            desk.working.touch(np.union1d(claim.rows, claims[at].rows))
    if not desk.reserved:
        return view
    fresh = desk.working.reserved = view.with_claims(tuple(claims))
    return fresh


def _searches(desk: Desk, fleet: Fleet, claims: list[Claim]) -> list[int]:
    """Whose place has to be looked for, the strongest first. Where those are many, they take turns."""
    short = [
        at for at, claim in enumerate(claims) if claim.reservation.gpus and not is_well_placed(fleet, claim.reservation)
    ]
    if len(short) <= MOST_SEARCHES:
        return short
    desk.look_again(desk.working.now_s + 1)
    first = desk.working.now_s * MOST_SEARCHES % len(short)
    return (short[first:] + short[:first])[:MOST_SEARCHES]


def _clear(desk: Desk, view: ReservedView, claim: Claim) -> None:
    """Whoever is on the devices of an active reservation and is not its owner's goes, if it may be preempted."""
    picture, nodes = desk.picture, desk.working.nodes
    places = set(zip(claim.rows.tolist(), claim.columns.tolist(), strict=True))
    whole = set(claim.whole.tolist())
    hit: dict[str, set[str]] = {}
    for row in sorted({row for row, _ in places} | whole):
        for kind, name, pod in sorted(picture.held_on.get(nodes.names[row], {})):
            held = picture.held_on[nodes.names[row]][kind, name, pod]
            workload = picture.workloads.get(name)
            columns = [nodes.column[row].get(share.gpu) for share in held.devices]
            is_here = row in whole or any((row, column) in places for column in columns)
            if workload is None or not is_here or not _is_stranger(desk, view, workload, row, columns):
                continue
            if not isinstance(held, Pod):
                desk.given_up.append((name, pod))
            elif held.phase in UP and workload.preemptible:
                hit.setdefault(name, set()).add(pod)
    for name in sorted(hit):
        _evict(desk, picture.workloads[name], hit[name], claim.name)


def _is_stranger(desk: Desk, view: ReservedView, workload: Workload, row: int, columns: list[int | None]) -> bool:
    """It could not have been started here now."""
    passes = desk.picture.reserved.passes_of(workload, desk.picture.queue_objects)
    closed = view.closed(passes, 0)
    is_kept_out = any(column is not None and closed[row, column] for column in columns)
    return is_kept_out or bool(view.closed_nodes(passes, 0)[row])


def _end(desk: Desk, reservation: Reservation) -> None:
    """The owner's work that began before the end goes with the reservation, also what may not be preempted."""
    picture, book = desk.picture, desk.picture.reserved
    claim = claim_of(reservation, desk.working.nodes)
    for row in sorted(set(claim.rows.tolist())):
        columns = set(claim.columns[claim.rows == row].tolist())
        known = desk.working.nodes.column[row]
        hit: dict[str, set[str]] = {}
        for held in picture.held_on.get(desk.working.nodes.names[row], {}).values():
            workload = picture.workloads.get(held.workload)
            if (
                workload is None
                or not isinstance(held, Pod)
                or held.phase not in UP
                or held.since_s >= reservation.end_s
            ):
                continue
            is_here = any(known.get(share.gpu) in columns for share in held.devices)
            if is_here and book.is_owners(reservation, workload, picture.queue_objects):
                hit.setdefault(held.workload, set()).add(held.name)
        for name in sorted(hit):
            _evict(desk, picture.workloads[name], hit[name], reservation.name)


def _expire(desk: Desk) -> None:
    """Workloads whose allocation was given until now end, with all their pods."""
    for name in expired_work(desk.picture, desk.working.now_s):
        desk.expired.append(name)
        for pod in _up(desk, name):
            if (name, pod.name) not in desk.roster.gone:
                desk.evict(Eviction(name, pod.name, Cause.EXPIRED))


def _evict(desk: Desk, workload: Workload, pods: Iterable[str], reservation: str) -> None:
    """These pods, or all of them when the workload cannot go on without these."""
    up = _up(desk, workload.name)
    gone = desk.roster.gone
    staying = {pod.name for pod in up if pod.name not in pods and (workload.name, pod.name) not in gone}
    if not is_enough(workload, staying):
        staying = set()
    leaving = [pod for pod in up if pod.name not in staying and (workload.name, pod.name) not in gone]
    lost = lost_gpu_s(workload, leaving, desk.working.now_s)
    for pod in leaving:
        desk.evict(Eviction(workload.name, pod.name, Cause.RESERVATION, reservation, lost))
        lost = 0  # told once


def _up(desk: Desk, name: str) -> list[Pod]:
    pods = desk.picture.pods.get(name, {})
    return [pods[pod] for pod in sorted(pods) if pods[pod].phase in UP]
