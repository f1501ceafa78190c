"""The status of each reservation: its devices, how much is used, and which other workloads are still on them."""

from typing import NamedTuple

from kaiwo.model.reservation import PhysicalDevice, Reservation, ReservationPhase
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.reserved_devices import device_columns, locate_reservation


class ReservationStatus(NamedTuple):
    reservation: Reservation
    phase: ReservationPhase
    devices: tuple[PhysicalDevice, ...]  # physical GPUs that it has, or will have
    missing: int  # GPUs that were asked for but do not exist, or were not found yet
    total_milli: int
    used_milli: int  # held by work that may use it
    others: tuple[str, ...]  # workloads that hold some of it and may not use it, while it is active


def reservation_statuses(state: ClusterState, now_s: int) -> list[ReservationStatus]:
    state.refresh_tables()
    return [_status(state, found, now_s) for _, found in sorted(state.reservations.objects.items())]


def _status(state: ClusterState, reservation: Reservation, now_s: int) -> ReservationStatus:
    nodes, phase = state.nodes, reservation.phase(now_s)
    claim = locate_reservation(reservation, nodes)
    places = {
        (nodes.names[row], nodes.nodes[row].gpus[at].id) for row, at in zip(claim.rows, claim.columns, strict=True)
    }
    used_milli, others = 0, set()
    if phase is ReservationPhase.ACTIVE:
        for node in sorted({node for node, _ in places}):
            for held in state.allocations_on.get(node, {}).values():
                milli = sum(share.milli for share in held.devices if (node, share.gpu) in places)
                workload = state.workloads.get(held.workload)
                is_owners = workload is not None and state.reservations.admits(
                    reservation, workload, state.queue_objects
                )
                used_milli += milli if is_owners else 0
                if milli and not is_owners:
                    others.add(held.workload)
    return ReservationStatus(
        reservation,
        phase,
        _devices(state, reservation),
        _missing(state, reservation, phase),
        int(nodes.device_milli[claim.rows, claim.columns].sum()),
        used_milli,
        tuple(sorted(others)),
    )


def _devices(state: ClusterState, reservation: Reservation) -> tuple[PhysicalDevice, ...]:
    found = list(reservation.kept)
    for name in reservation.nodes:
        node = state.node_objects.get(name)
        found += dict.fromkeys(PhysicalDevice(name, gpu.parent or gpu.id) for gpu in (node.gpus if node else ()))
    return tuple(found)


def _missing(state: ClusterState, reservation: Reservation, phase: ReservationPhase) -> int:
    if phase is ReservationPhase.EXPIRED:
        return 0
    if reservation.gpus:
        return reservation.gpus - len(reservation.picked)
    gone = sum(1 for device in reservation.devices if not device_columns(device, state.nodes))
    return gone + sum(1 for name in reservation.nodes if name not in state.node_objects)
