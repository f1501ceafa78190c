"""Obstacles of reservations: those that keep devices a request could otherwise use, with their owner and times."""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.obstacles.availability import availability_in
from kaiwo.decide.obstacles.partition_obstacles import reserved_by
from kaiwo.decide.obstacles.shortages import is_permanent, large_enough, short_of
from kaiwo.gpus.device_fit import eligible_devices, pods_per_device
from kaiwo.model.obstacle import (
    LargerNodes,
    Obstacle,
    Reason,
    ReservationProblem,
    ReservationUnusable,
    ReservedBy,
    SizeBound,
)
from kaiwo.model.request import Request
from kaiwo.model.reservation import NEVER_S, ReservationOwner, ReservationPhase
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.node_table import SIZE
from kaiwo.snapshot.reserved_devices import DeviceReservation, ReservedDevices
from kaiwo.snapshot.view import View

TOO_FEW = (Reason.NOT_ENOUGH_GPUS, Reason.NOT_ENOUGH_GPU_MEMORY)


class BlockingReservation(NamedTuple):
    obstacle: Obstacle
    would_do: bool  # what it keeps would be enough for all pods, and is free
    could_serve: bool = True  # some node on which it keeps GPUs is large enough for a pod


def reserved_obstacles(view: View, want: Request, allowed: BoolArray, pods: int = 1) -> list[BlockingReservation]:
    """The strongest reservation first. For work that names a reservation, that one alone.

    `allowed`: the nodes that pass all filters. What is reserved elsewhere keeps nothing from it.
    """
    if want.reservation:
        return (
            [BlockingReservation(obstacle, True)] if (obstacle := _named(view.reservations, want)) is not None else []
        )
    if view.reservations is None:
        return []
    found = []
    for claim in view.reservations.reservations:
        if view.reservations.closes(claim, want.passes, want.holds_s):
            blocking = (
                _of_devices(view, want, claim, allowed, pods) if want.gpus else _of_nodes(view, want, claim, allowed)
            )
            if blocking is not None:
                found.append(blocking)
    return found


def beside_reserved(view: View, want: Request, others: list[Obstacle]) -> list[Obstacle]:
    """The other obstacles, without those that would mistake what reservations leave for the whole cluster."""
    hidden = (Reason.GPU_MODEL, Reason.GPU_UNHEALTHY, Reason.PARTITION_MODE, Reason.PLUGIN)
    left = [each for each in others if each.reason not in hidden and (each.have or each.reason not in TOO_FEW)]
    would_serve = _would_serve(view, want)
    larger = SizeBound(LargerNodes.LARGE_ENOUGH if would_serve else LargerNodes.ALSO_TOO_SMALL)
    is_anywhere = want.gpus and not want.reservation and not any(each.reason in TOO_FEW for each in left)
    if is_anywhere and not _would_fit(view, want).any():
        # All that it could use is reserved, and even that is too small: no reservation is to blame.
        admitted = _admitted(view, want)
        offer = availability_in(view, admitted, view.all_rows)
        short = short_of(view, admitted, view.all_rows, offer)
        sizes = [each for each in short if each.reason in TOO_FEW or isinstance(each.facts, SizeBound)]
        if sizes and (is_permanent(sizes[0]) or (would_serve and not left)):
            return [*sizes, *left]
    return [replace(each, facts=larger) if each.reason in TOO_FEW else each for each in left]


def _would_serve(view: View, want: Request) -> bool:
    """Counting reserved devices, some node would be large enough if it were empty."""
    return bool(_enough_devices(view, want).any())


def _would_fit(view: View, want: Request) -> BoolArray:
    """Nodes that would be large enough in everything if nothing ran there and nothing were reserved."""
    return _enough_devices(view, want) & large_enough(view, want)


def _enough_devices(view: View, want: Request) -> BoolArray:
    rows = np.arange(len(view.nodes.names))
    able = eligible_devices(view, _admitted(view, want), rows)
    large: BoolArray = able & (view.of(rows).gpus[:, SIZE] >= want.gpu_mib)
    enough: BoolArray = large.sum(axis=1) >= want.gpus
    return enough


def _admitted(view: View, want: Request) -> Request:
    """The same request, if it were admitted to every reservation."""
    names = [claim.name for claim in view.reservations.reservations] if view.reservations is not None else []
    return replace(want, passes=(*want.passes, *names), holds_s=0)


def _named(reserved: ReservedDevices | None, want: Request) -> Obstacle | None:
    claim = None if reserved is None else reserved.find(want.reservation)
    if reserved is None or claim is None:
        facts = ReservationUnusable(ReservationProblem.ABSENT)
    elif want.reservation not in want.passes:
        facts = ReservationUnusable(ReservationProblem.OTHER_OWNER, claim.reservation.owner)
    elif not reserved.is_active(claim):
        times = reserved_by(claim.reservation, reserved.now_s)
        facts = ReservationUnusable(ReservationProblem.NOT_STARTED, ReservationOwner(), times.start_s, times.end_s)
    elif not want.gpus and not len(claim.rows):
        facts = ReservationUnusable(ReservationProblem.EMPTY)
    else:
        return None
    return Obstacle(Reason.RESERVATION, want.gpus, 0, "gpus", want.reservation, facts)


def _of_devices(
    view: View, want: Request, claim: DeviceReservation, allowed: BoolArray, pods: int
) -> BlockingReservation | None:
    """How many of its devices would serve and are free."""
    assert view.reservations is not None
    rows, admitted = np.unique(claim.rows), _admitted(view, want)
    at = np.searchsorted(rows, claim.rows)
    is_open = allowed[claim.rows]
    if not (eligible_devices(view, admitted, rows)[at, claim.columns] & is_open).any():
        return None
    free = int(((pods_per_device(view, admitted, rows)[at, claim.columns] > 0) & is_open).sum())
    facts, would_do = replace(_reserved_by(view.reservations, want, claim), free=free), free >= want.gpus * pods
    could_serve = bool((_would_fit(view, want) & allowed)[rows].any())
    obstacle = Obstacle(Reason.RESERVED, want.gpus, 0, "gpus", claim.name, facts)
    return BlockingReservation(obstacle, would_do and could_serve, could_serve)


def _of_nodes(view: View, want: Request, claim: DeviceReservation, allowed: BoolArray) -> BlockingReservation | None:
    assert view.reservations is not None
    if not allowed[claim.whole].any():
        return None
    could_serve = bool((_would_fit(view, want) & allowed)[claim.whole].any())
    facts = reserved_by(claim.reservation, view.reservations.now_s)
    return BlockingReservation(Obstacle(Reason.RESERVED, 1, 0, "nodes", claim.name, facts), could_serve, could_serve)


def _reserved_by(reserved: ReservedDevices, want: Request, claim: DeviceReservation) -> ReservedBy:
    """The owner and the times; and before the start, that this work might still be running then."""
    facts = reserved_by(claim.reservation, reserved.now_s)
    if claim.reservation.phase(reserved.now_s) is not ReservationPhase.PENDING:
        return facts
    is_endless = want.holds_s >= NEVER_S
    return replace(facts, is_endless=is_endless, overruns=not is_endless)
