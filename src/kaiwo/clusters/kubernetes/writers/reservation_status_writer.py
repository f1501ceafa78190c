"""Write the status of KaiwoReservations: phase, devices and a sentence.

The devices that a plan picked are stored in the status, so that another leader keeps them. They count as soon as the
plan has picked them.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import RESERVATIONS, ReservationObject, read_reservation
from kaiwo.clusters.kubernetes.writers.coalescing_writer import Report, report_failures
from kaiwo.clusters.kubernetes.writers.status_writer import StatusWriter, still_in_force
from kaiwo.model.plan import Plan
from kaiwo.model.reservation import PhysicalDevice, Reservation

UNREADABLE = "Unreadable"


class ReservationStatusWriter:
    def __init__(self, client: Client, cache: ClusterCache, now_s: Callable[[], int], report: Report) -> None:
        self._cache, self._now_s, self._report = cache, now_s, report
        self._picked: dict[str, tuple[PhysicalDevice, ...]] = {}  # by a plan, and not in the status yet
        self._generations: dict[str, int] = {}
        failed = report_failures(report, "reservation-status-failed", "reservation")
        self._writer = StatusWriter(client, RESERVATIONS, failed)
        self.close = self._writer.close

    def start(self) -> None:
        """Check every second: phases depend on the clock."""
        self._writer.start(self._review)

    def upsert(self, item: ReservationObject) -> None:
        """An object is new or changed. Devices that a plan picked meanwhile stay."""
        name, reservation = item.metadata.name, read_reservation(item)
        self._writer.written[name] = item.status or {}
        self._generations[name] = item.metadata.generation
        if isinstance(reservation, str):
            if self._cache.reservation_cache.upsert_fault(name, reservation):
                self._report("reservation-unreadable", level="warning", reservation=name, error=reservation)
            return
        if self._picked.get(name) == reservation.picked:
            del self._picked[name]
        reservation = replace(reservation, picked=self._picked.get(name, reservation.picked))
        self._cache.queue_events(self._cache.reservation_cache.upsert(reservation))

    def delete(self, item: ReservationObject) -> None:
        name = item.metadata.name
        self._picked.pop(name, None)
        self._generations.pop(name, None)
        self._writer.drop(name)
        self._cache.queue_events(self._cache.reservation_cache.delete(name))

    def apply(self, plan: Plan) -> None:
        """Remember the devices that a plan picked; the scheduler assumes them already."""
        for picked in plan.reserved:
            found = self._cache.reservations.get(picked.reservation)
            if found is not None:
                self._picked[picked.reservation] = picked.devices
                self._cache.reservations[picked.reservation] = replace(found, picked=picked.devices)

    def discard_decisions(self) -> None:
        self._picked = {}

    def _review(self) -> None:
        for name in sorted(self._cache.reservations.keys() | self._cache.reservation_cache.faults.keys()):
            generation = {"observedGeneration": self._generations.get(name, 0)}
            self._writer.put_changed(name, self._status(name) | generation)

    def _status(self, name: str) -> dict[str, Any]:
        """If the object cannot be read: what is in force instead, and why."""
        known, fault = self._cache.reservations.get(name), self._cache.reservation_cache.faults.get(name, "")
        if known is None:
            return {"phase": UNREADABLE, "kept": 0, "message": fault, "devices": []}
        status = status_fields(known, self._now_s())
        return status | {"message": still_in_force(fault)} if fault else status


def status_fields(reservation: Reservation, now_s: int) -> dict[str, Any]:
    kept = reservation.kept
    devices = [{"node": device.node, "gpu": device.gpu} for device in kept] if reservation.gpus else []
    phase = reservation.phase(now_s)
    message = f"for {reservation.owner.words} {reservation.times(now_s)}"
    if reservation.gpus > len(kept):
        message += f"; {reservation.gpus - len(kept)} of {reservation.gpus} GPUs are not available now"
    return {"phase": phase.value.capitalize(), "kept": len(kept), "message": message, "devices": devices}
