"""Obstacles of reservations: those that keep devices a request could otherwise use, with their owner and times."""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.decide.obstacles.partition_obstacles import reserved_by
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
    would_do: bool  # what it keeps would be enough for one pod, and is free


def reserved_obstacles(view: View, want: Request) -> list[BlockingReservation]:
    """The strongest reservation first. For work that names a reservation, that one alone."""
    if want.reservation:
        return (
            [BlockingReservation(obstacle, True)] if (obstacle := _named(view.reservations, want)) is not None else []
        )
    if view.reservations is None:
        return []
    found = []
    for claim in view.reservations.reservations:
        if view.reservations.closes(claim, want.passes, want.holds_s):
            blocking = _of_devices(view, want, claim) if want.gpus else _of_nodes(view.reservations, claim)
            if blocking is not None:
                found.append(blocking)
    return found


def beside_reserved(view: View, want: Request, others: list[Obstacle]) -> list[Obstacle]:
    """The other obstacles, without those that would mistake what reservations leave for the whole cluster."""
    hidden = (Reason.GPU_MODEL, Reason.GPU_UNHEALTHY, Reason.PARTITION_MODE, Reason.PLUGIN)
    left = [each for each in others if each.reason not in hidden and (each.have or each.reason not in TOO_FEW)]
    larger = SizeBound(LargerNodes.LARGE_ENOUGH if _would_serve(view, want) else LargerNodes.ALSO_TOO_SMALL)
    return [replace(each, facts=larger) if each.reason in TOO_FEW else each for each in left]


def _would_serve(view: View, want: Request) -> bool:
    """Counting reserved devices, some node would be large enough if it were empty."""
    rows = np.arange(len(view.nodes.names))
    able = eligible_devices(view, _admitted(view, want), rows)
    large: BoolArray = able & (view.of(rows).gpus[:, SIZE] >= want.gpu_mib)
    return bool((large.sum(axis=1) >= want.gpus).any())


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
    else:
        return None
    return Obstacle(Reason.RESERVATION, want.gpus, 0, "gpus", want.reservation, facts)


def _of_devices(view: View, want: Request, claim: DeviceReservation) -> BlockingReservation | None:
    """How many of its devices would serve and are free."""
    assert view.reservations is not None
    rows, admitted = np.unique(claim.rows), _admitted(view, want)
    at = np.searchsorted(rows, claim.rows)
    if not eligible_devices(view, admitted, rows)[at, claim.columns].any():
        return None
    free = int((pods_per_device(view, admitted, rows)[at, claim.columns] > 0).sum())
    facts = replace(_reserved_by(view.reservations, want, claim), free=free)
    return BlockingReservation(Obstacle(Reason.RESERVED, want.gpus, 0, "gpus", claim.name, facts), free >= want.gpus)


def _of_nodes(view: ReservedDevices, claim: DeviceReservation) -> BlockingReservation | None:
    if not len(claim.whole):
        return None
    facts = reserved_by(claim.reservation, view.now_s)
    return BlockingReservation(Obstacle(Reason.RESERVED, 1, 0, "nodes", claim.name, facts), True)


def _reserved_by(reserved: ReservedDevices, want: Request, claim: DeviceReservation) -> ReservedBy:
    """The owner and the times; and before the start, that this work might still be running then."""
    facts = reserved_by(claim.reservation, reserved.now_s)
    if claim.reservation.phase(reserved.now_s) is not ReservationPhase.PENDING:
        return facts
    is_endless = want.holds_s >= NEVER_S
    return replace(facts, is_endless=is_endless, overruns=not is_endless)
