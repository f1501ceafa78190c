"""Reservations of an embedded cluster, and the end of allocations that expire. Plans pick the devices."""

from collections.abc import Sequence

from msgspec.structs import replace

from kaiwo.clusters.embedded import transitions
from kaiwo.clusters.embedded.lifecycle import Ending
from kaiwo.clusters.embedded.state import EmbeddedState, Transaction
from kaiwo.clusters.queue_access import first_names
from kaiwo.model.errors import ConfigError, NotFoundError, RefusedError
from kaiwo.model.plan import Plan
from kaiwo.model.reservation import (
    PhysicalDevice,
    Reservation,
    ReservationPhase,
    check_reservation,
    clock_words,
    is_same_reservation,
)

EXPIRED_KEPT = 200  # reservations that are over and are still listed
MAX_NAMED = 4  # GPUs of a node in one sentence


def put(transaction: Transaction, reservations: Sequence[Reservation]) -> None:
    """Create or replace reservations. Devices that were picked for one stay until a plan picks others."""
    fresh = {reservation.name: reservation for reservation in reservations}
    if len(fresh) < len(reservations):
        raise ConfigError("a reservation is listed twice; give each its own name", "metadata.name")
    for reservation in fresh.values():
        before = transaction.state.reservations.get(reservation.name)
        created_s = transaction.now_s if before is None else before.created_s
        kept = replace(reservation, created_s=created_s, picked=before.picked if before and reservation.gpus else ())
        _check(transaction.state, kept, transaction.now_s, is_new=not is_same_reservation(reservation, before))
        if kept != before:
            transaction.put_reservation(kept)
    _forget_old(transaction)


def remove(transaction: Transaction, names: Sequence[str]) -> None:
    """Remove reservations. Work that runs on their devices continues."""
    for name in dict.fromkeys(names):
        if name not in transaction.state.reservations:
            known = ", ".join(sorted(transaction.state.reservations)[:5]) or "none"
            raise NotFoundError(f"reservation {name} does not exist; there are: {known}")
        transaction.drop_reservation(name)


def record_picked_devices(transaction: Transaction, plan: Plan) -> None:
    """Store which devices the plan picked. The scheduler knows them already, so only a new reader gets an event."""
    for picked in plan.reserved:
        before = transaction.state.reservations.get(picked.reservation)
        if before is not None and before.picked != picked.devices:
            transaction.put_reservation(replace(before, picked=picked.devices), is_known=True)


def expire(transaction: Transaction, names: Sequence[str]) -> list[str]:
    """End workloads whose allocation has expired. Returns those that had not ended before."""
    ended = []
    for name in names:
        tracked = transaction.state.workloads.get(name)
        if tracked is None or tracked.is_over or tracked.ending is Ending.CANCEL:
            continue
        message = f"its allocation was granted until {clock_words(tracked.workload.expires_s)}"
        transitions.stop_workload(transaction, tracked, Ending.CANCEL, message)
        ended.append(name)
    return ended


def _check(state: EmbeddedState, reservation: Reservation, now_s: int, is_new: bool) -> None:
    """Check it by itself; if it is new or changed, also against the nodes and the other reservations."""
    if sentence := check_reservation(reservation):
        raise ConfigError(sentence, "spec")
    if not is_new:
        return
    name, owner = reservation.name, reservation.owner
    if reservation.phase(now_s) is ReservationPhase.EXPIRED:
        raise ConfigError(f"reservation {name} would already be over; give it a later end", "spec.end")
    if owner.queue and owner.queue not in state.queues:
        raise RefusedError(f"reservation {name} is for queue {owner.queue}, which does not exist; create it first")
    _check_nodes_and_devices(state, reservation)
    for other in state.reservations.values():
        is_live = other.phase(now_s) is not ReservationPhase.EXPIRED
        shared = _named_devices(state, reservation) & _named_devices(state, other)
        if other.name != name and is_live and shared and reservation.overlaps(other):
            device = min(shared, key=lambda each: (each.node, each.gpu))
            raise RefusedError(
                f"reservation {name} names {device.gpu} of node {device.node}, which reservation {other.name} keeps "
                f"for {other.owner.words} {other.times()}; choose other devices or another time"
            )


def _check_nodes_and_devices(state: EmbeddedState, reservation: Reservation) -> None:
    for name in (*reservation.nodes, *(device.node for device in reservation.devices)):
        if name not in state.nodes:
            raise RefusedError(f"reservation {reservation.name} names node {name}, which does not exist")
    for device in reservation.devices:
        known = {gpu.parent or gpu.id for gpu in state.nodes[device.node].gpus}
        if device.gpu not in known:
            some = first_names(sorted(known), MAX_NAMED) or "none"
            raise RefusedError(
                f"reservation {reservation.name} names {device.gpu} of node {device.node}, which has: {some}"
            )


def _named_devices(state: EmbeddedState, reservation: Reservation) -> set[PhysicalDevice]:
    """The devices that it names, directly or through their node. Picked devices do not count: they can move."""
    named = set(reservation.devices)
    for name in reservation.nodes:
        node = state.nodes.get(name)
        named.update(PhysicalDevice(name, gpu.parent or gpu.id) for gpu in (node.gpus if node else ()))
    return named


def _forget_old(transaction: Transaction) -> None:
    over = [each for each in transaction.state.reservations.values() if each.until_s <= transaction.now_s]
    over.sort(key=lambda each: (each.end_s, each.name))
    for reservation in over[: max(0, len(over) - EXPIRED_KEPT)]:
        transaction.drop_reservation(reservation.name)
