"""KaiwoReservations of the cluster: read like files, and their status written when it says something else.

In:    the objects, plans, the clock.   Out: Reservations; a status with phase, devices and a sentence.
Never: writes a status that is there already. The devices that a plan picked are in the status, so that another leader
       keeps the same; until the server has them, what the plan said counts.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.last_readable_version import Found, find, parse_own
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.quantities import seconds
from kaiwo.clusters.kubernetes.decode.wire_objects import QueueMeta, Wire
from kaiwo.clusters.kubernetes.writers.queue_status_writer import still_in_force
from kaiwo.model.plan import Plan
from kaiwo.model.reservation import Device, Reservation

PATH = "/apis/kaiwo.ai/v1alpha2/kaiworeservations"
UNREADABLE = "Unreadable"
LOOK_S = 1.0  # how late a phase may be in the status; the scheduler itself goes by the clock


class ReservationObject(Wire):
    """A KaiwoReservation. Its spec is read by the same code as a file's."""

    metadata: QueueMeta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


FoundReservation = Found[ReservationObject, Reservation]


def find_reservation(item: ReservationObject) -> FoundReservation:
    """What cannot be used stays on the books."""
    return find(item, read_reservation)


def read_reservation(item: ReservationObject) -> Reservation | str:
    """One reservation, or the sentence why it cannot be used."""
    parsed = parse_own("KaiwoReservation", item)
    if isinstance(parsed, str):
        return parsed
    found, created_s = parsed.reservations[0], seconds(item.metadata.creation_timestamp)
    return replace(found, created_s=created_s, picked=_picked(item.status) if found.gpus else ())


class ReservationStatusWriter:
    """Keeps the books' reservations, and writes their status while this is the leader."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        now_s: Callable[[], int],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._now_s, self._report = client, cache, now_s, report
        self._wanted: dict[str, tuple[Device, ...]] = {}  # picked by a plan, and not in the status yet
        self._there: dict[str, dict[str, Any]] = {}  # the status as the server has it
        self._generations: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look after the status."""
        self._task = asyncio.create_task(self._run(), name="kaiwo-reservations")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, found: FoundReservation) -> None:
        """What the watch brought, with what a plan picked meanwhile."""
        name, reservation = found.name, found.what
        self._there[name] = found.item.status or {}
        self._generations[name] = found.item.metadata.generation
        if reservation is None:
            if self._cache.reservation_shelf.put_fault(name, found.fault):
                self._report("reservation-unreadable", level="warning", reservation=name, error=found.fault)
            return
        if self._wanted.get(name) == reservation.picked:
            del self._wanted[name]
        self._cache.put_reservation(replace(reservation, picked=self._wanted.get(name, reservation.picked)))

    def drop(self, found: FoundReservation) -> None:
        """It is gone."""
        for known in (self._wanted, self._there, self._generations):
            known.pop(found.name, None)
        self._cache.drop_reservation(found.name)

    def carry(self, plan: Plan) -> None:
        """The devices that a plan picked; the scheduler assumes them already."""
        for picked in plan.reserved:
            found = self._cache.reservations.get(picked.reservation)
            if found is not None:
                self._wanted[picked.reservation] = picked.devices
                self._cache.reservations[picked.reservation] = replace(found, picked=picked.devices)

    def follow(self) -> None:
        """Somebody else leads: what is in the objects is what counts."""
        self._wanted = {}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._client.may_write:
                for name in sorted(self._cache.reservations.keys() | self._cache.reservation_shelf.faults.keys()):
                    await self._write(name)

    async def _write(self, name: str) -> None:
        status = self._status(name) | {"observedGeneration": self._generations.get(name, 0)}
        there = self._there.get(name, {})
        if all(there.get(key) == value for key, value in status.items()):
            return
        try:
            await self._client.patch(f"{PATH}/{quote(name)}/status", msgspec.json.encode({"status": status}))
            self._there[name] = there | status
        except (ApiError, UnreachableError) as error:
            self._report("reservation-status-failed", level="warning", reservation=name, error=str(error)[:300])

    def _status(self, name: str) -> dict[str, Any]:
        """Of one that cannot be read: what is in force, and why that is not what was written."""
        known, fault = self._cache.reservations.get(name), self._cache.reservation_shelf.faults.get(name, "")
        if known is None:
            return {"phase": UNREADABLE, "kept": 0, "message": fault, "devices": []}
        status = status_of(known, self._now_s())
        return status | {"message": still_in_force(fault)} if fault else status


def status_of(reservation: Reservation, now_s: int) -> dict[str, Any]:
    """What people and the next leader read."""
    kept = reservation.kept
    devices = [{"node": device.node, "gpu": device.gpu} for device in kept] if reservation.gpus else []
    phase = reservation.phase(now_s)
    message = f"for {reservation.owner.words} {reservation.times(now_s)}"
    if reservation.gpus > len(kept):
        message += f"; {reservation.gpus - len(kept)} of {reservation.gpus} GPUs are not to be had now"
    return {"phase": phase.value.capitalize(), "kept": len(kept), "message": message, "devices": devices}


def _picked(status: dict[str, Any] | None) -> tuple[Device, ...]:
    """Spoilt entries are as good as none: they are picked anew."""
    found = (status or {}).get("devices")
    items = found if isinstance(found, list) else []
    pairs = [(item.get("node"), item.get("gpu")) for item in items if isinstance(item, dict)]
    return tuple(Device(node, gpu) for node, gpu in pairs if isinstance(node, str) and isinstance(gpu, str))
