"""Write the status of KaiwoReservations: phase, devices and a sentence.

In:    the objects, plans, the clock.   Out: status writes, only where something changed.
The devices that a plan picked are in the status, so that another leader keeps the same; until the server has them, what
the plan said counts.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import RESERVATIONS, ReservationObject, read_reservation
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, Report, report_failures
from kaiwo.clusters.kubernetes.writers.queue_status_writer import still_in_force
from kaiwo.model.plan import Plan
from kaiwo.model.reservation import PhysicalDevice, Reservation

UNREADABLE = "Unreadable"


class ReservationStatusWriter:
    """Keeps the reservations of the cache, and writes their status while this replica leads."""

    def __init__(
        self, client: Client, cache: ClusterCache, now_s: Callable[[], int], report: Report = lambda *_, **__: None
    ) -> None:
        self._client, self._cache, self._now_s, self._report = client, cache, now_s, report
        self._picked: dict[str, tuple[PhysicalDevice, ...]] = {}  # by a plan, and not in the status yet
        self._written: dict[str, dict[str, Any]] = {}  # the status as the server has it
        self._generations: dict[str, int] = {}
        failed = report_failures(report, "reservation-status-failed", "reservation")
        self._writer = CoalescingWriter(client, self._write, failed)
        self.close = self._writer.close

    def start(self) -> None:
        """Look every second: phases follow the clock."""
        self._writer.start(self._review)

    def upsert(self, item: ReservationObject) -> None:
        """An object is new or changed. Devices that a plan picked meanwhile stay."""
        name, reservation = item.metadata.name, read_reservation(item)
        self._written[name] = item.status or {}
        self._generations[name] = item.metadata.generation
        if isinstance(reservation, str):
            if self._cache.reservation_cache.upsert_fault(name, reservation):
                self._report("reservation-unreadable", level="warning", reservation=name, error=reservation)
            return
        if self._picked.get(name) == reservation.picked:
            del self._picked[name]
        self._cache.queue_events(
            self._cache.reservation_cache.upsert(
                replace(reservation, picked=self._picked.get(name, reservation.picked))
            )
        )

    def delete(self, item: ReservationObject) -> None:
        """An object is gone."""
        name = item.metadata.name
        for known in (self._picked, self._written, self._generations):
            known.pop(name, None)
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
        """Another replica leads: what is in the objects counts."""
        self._picked = {}

    def _review(self) -> None:
        for name in sorted(self._cache.reservations.keys() | self._cache.reservation_cache.faults.keys()):
            status = self._status(name) | {"observedGeneration": self._generations.get(name, 0)}
            written = self._written.get(name, {})
            if any(written.get(key) != value for key, value in status.items()):
                self._writer.put(name, status)

    def _status(self, name: str) -> dict[str, Any]:
        """Of an object that cannot be read: what is in force, and why that is not what it says."""
        known, fault = self._cache.reservations.get(name), self._cache.reservation_cache.faults.get(name, "")
        if known is None:
            return {"phase": UNREADABLE, "kept": 0, "message": fault, "devices": []}
        status = status_fields(known, self._now_s())
        return status | {"message": still_in_force(fault)} if fault else status

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        body = msgspec.json.encode({"status": status})
        await self._client.patch(f"{RESERVATIONS}/{quote(name)}/status", body, tries=1)
        self._written[name] = self._written.get(name, {}) | status


def status_fields(reservation: Reservation, now_s: int) -> dict[str, Any]:
    """What people and the next leader read."""
    kept = reservation.kept
    devices = [{"node": device.node, "gpu": device.gpu} for device in kept] if reservation.gpus else []
    phase = reservation.phase(now_s)
    message = f"for {reservation.owner.words} {reservation.times(now_s)}"
    if reservation.gpus > len(kept):
        message += f"; {reservation.gpus - len(kept)} of {reservation.gpus} GPUs are not available now"
    return {"phase": phase.value.capitalize(), "kept": len(kept), "message": message, "devices": devices}
