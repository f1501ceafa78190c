"""Reservations in the cluster's state: which are live, which devices they have, and which work may use them.

In:    reservations, nodes, queues, the time.   Out: access for waiting work, and a view of the devices for a cycle.
Never: reads a clock. Without reservations there is no view, and requests stay as they are.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from kaiwo.model.events import ReservationChanged, ReservationGone
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.reservation import NEVER_S, PhysicalDevice, Reservation, ReservationPhase
from kaiwo.model.workload import Workload
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows, freeze
from kaiwo.snapshot.node_table import NodeTable

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class ReservationAccess(NamedTuple):
    passes: tuple[str, ...] = ()  # the reservations that work may use
    holds_s: int = 0  # how long it holds its devices without being evicted


NO_ACCESS = ReservationAccess()


class DeviceReservation(NamedTuple):
    """Where a reservation is: its devices by row and column, and the rows of nodes that it has whole."""

    reservation: Reservation
    rows: Rows
    columns: Rows
    whole: Rows

    @property
    def name(self) -> str:
        return self.reservation.name


class ReservedDevices:
    """The reserved devices at one moment. Masks are cached by equal access."""

    def __init__(self, claims: tuple[DeviceReservation, ...], now_s: int, shape: tuple[int, int]) -> None:
        self.reservations, self.now_s, self._shape = claims, now_s, shape  # the strongest claim first
        self._closed: dict[tuple[tuple[str, ...], int], tuple[BoolArray, BoolArray]] = {}  # by access
        self._ranks: dict[tuple[str, ...], IntArray] = {}

    def with_reservations(self, claims: tuple[DeviceReservation, ...]) -> "ReservedDevices":
        return ReservedDevices(claims, self.now_s, self._shape)

    def closed(self, passes: tuple[str, ...], holds_s: int) -> BoolArray:
        """Per device: reserved for others now, or before this work would have ended."""
        return self._masks(passes, holds_s)[0]

    def closed_nodes(self, passes: tuple[str, ...], holds_s: int) -> BoolArray:
        """Per node: reserved whole for others."""
        return self._masks(passes, holds_s)[1]

    def usable(self, passes: tuple[str, ...]) -> BoolArray:
        """The devices of active reservations that work with these passes may use."""
        found = np.zeros(self._shape, np.bool_)
        for claim in self.reservations:
            if claim.name in passes and self.is_active(claim):
                found[claim.rows, claim.columns] = True
        return found & ~self.closed(passes, 0)

    def device_rank(self, passes: tuple[str, ...]) -> IntArray:
        """Per device, in which order to take it: 0 reserved for the work, 1 free for all, 2 soon for others."""
        found = self._ranks.get(passes)
        if found is None:
            found = np.ones(self._shape, np.int64)
            for claim in self.reservations:
                if claim.name not in passes and claim.reservation.start_s > self.now_s:
                    found[claim.rows, claim.columns] = 2
            found[self.usable(passes)] = 0
            freeze(found)
            self._ranks[passes] = found
        return found

    def is_active(self, claim: DeviceReservation) -> bool:
        return claim.reservation.phase(self.now_s) is ReservationPhase.ACTIVE

    def find(self, name: str) -> DeviceReservation | None:
        return next((claim for claim in self.reservations if claim.name == name), None)

    def closes(self, claim: DeviceReservation, passes: tuple[str, ...], holds_s: int) -> bool:
        """Whether the reservation excludes such work from its devices."""
        if claim.name in passes:
            return False
        phase = claim.reservation.phase(self.now_s)
        is_coming = phase is ReservationPhase.PENDING and self.now_s + holds_s > claim.reservation.start_s
        return phase is ReservationPhase.ACTIVE or is_coming

    def _masks(self, passes: tuple[str, ...], holds_s: int) -> tuple[BoolArray, BoolArray]:
        found = self._closed.get((passes, holds_s))
        if found is None:
            devices, nodes = np.zeros(self._shape, np.bool_), np.zeros(self._shape[0], np.bool_)
            for claim in reversed(self.reservations):  # of two active ones the stronger is written last
                if self.is_active(claim):
                    devices[claim.rows, claim.columns] = nodes[claim.whole] = claim.name not in passes
            for claim in self.reservations:
                if not self.is_active(claim) and self.closes(claim, passes, holds_s):
                    devices[claim.rows, claim.columns] = nodes[claim.whole] = True
            freeze(devices)
            freeze(nodes)
            found = self._closed[passes, holds_s] = (devices, nodes)
        return found


def locate_reservation(reservation: Reservation, nodes: NodeTable) -> DeviceReservation:
    rows: list[int] = []
    columns: list[int] = []
    whole = [nodes.row[name] for name in reservation.nodes if name in nodes.row]
    for row in whole:
        rows += [row] * len(nodes.nodes[row].gpus)
        columns += range(len(nodes.nodes[row].gpus))
    for device in reservation.kept:
        for column in device_columns(device, nodes):
            rows.append(nodes.row[device.node])
            columns.append(column)
    return DeviceReservation(reservation, np.array(rows, np.intp), np.array(columns, np.intp), np.array(whole, np.intp))


def device_columns(device: PhysicalDevice, nodes: NodeTable) -> list[int]:
    """The columns of a physical GPU: its own, or those of its partitions; none when it does not exist."""
    row = nodes.row.get(device.node)
    if row is None:
        return []
    if (column := nodes.column[row].get(device.gpu)) is not None:
        return [column]
    return [column for column, gpu in enumerate(nodes.nodes[row].gpus) if gpu.parent == device.gpu]


class ReservationIndex:
    """All reservations. What time changes takes effect with `advance_to`."""

    def __init__(self) -> None:
        self.objects: dict[str, Reservation] = {}
        self.live: tuple[Reservation, ...] = ()  # pending or active, the strongest first
        self.evicting: tuple[Reservation, ...] = ()  # ended, and their owners' work is evicted
        self.next_change_s = NEVER_S  # when one starts or ends next
        self._is_changed = False
        self._seen_s = -1
        self._located: tuple[DeviceReservation, ...] | None = None
        self._queue_paths: dict[str, tuple[str, ...]] = {}  # by queue: itself and those above

    def put(self, reservation: Reservation, nodes: NodeTable) -> Rows:
        """Add or replace a reservation. Returns the rows whose reserved devices change at once.

        What a cycle picked counts at once, since that cycle relied on it; everything else when the time next advances.
        """
        name, before = reservation.name, self.objects.get(reservation.name)
        if before == reservation:
            return _rows(())
        self.objects[name] = reservation
        if self._is_changed or before is None or replace(before, picked=reservation.picked) != reservation:
            self._is_changed = True
            return _rows(())
        self.live = tuple(reservation if each.name == name else each for each in self.live)
        self._located = None
        return _rows((locate_reservation(before, nodes), locate_reservation(reservation, nodes)))

    def drop(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self._is_changed = True

    def read_calendar_again(self) -> None:
        """The clock was set ahead or back: one that was active may be pending again."""
        self._is_changed = True

    def forget_positions(self) -> None:
        self._located = None

    def forget_queue_paths(self) -> None:
        """The queues changed, so access to reservations may have changed."""
        self._queue_paths = {}
        self._is_changed = self._is_changed or bool(self.objects)

    def changes_by(self, now_s: int) -> bool:
        """Whether the live reservations at this time differ from those when time last advanced."""
        return self._is_changed or now_s >= self.next_change_s

    def advance_to(self, now_s: int) -> None:
        self._is_changed, self._located = False, None
        ranked = sorted(self.objects.values(), key=_precedence)
        expired = [each for each in ranked if each.phase(now_s) is ReservationPhase.EXPIRED]
        self.live = tuple(each for each in ranked if each not in expired)
        self.evicting = tuple(each for each in expired if each.at_end == "evict")
        times = [at_s for each in self.live for at_s in (each.start_s, each.until_s) if at_s > now_s]
        self.next_change_s = min(times, default=NEVER_S)

    def rows_about_to_change(self, now_s: int, nodes: NodeTable) -> Rows | None:
        """The rows whose offers change with time alone: once per moment, while a reservation is about to start."""
        if now_s == self._seen_s or not any(each.start_s > now_s for each in self.live):
            return None
        self._seen_s = now_s
        return _rows([claim for claim in self.located(nodes) if claim.reservation.start_s > now_s])

    def rows(self, nodes: NodeTable) -> Rows:
        return _rows(self.located(nodes))

    def located(self, nodes: NodeTable) -> tuple[DeviceReservation, ...]:
        if self._located is None:
            self._located = tuple(locate_reservation(each, nodes) for each in self.live)
        return self._located

    def view(self, now_s: int, nodes: NodeTable) -> ReservedDevices | None:
        """The view for one cycle; None when nothing is reserved."""
        return ReservedDevices(self.located(nodes), now_s, (len(nodes.names), nodes.width)) if self.live else None

    def access_of(self, workload: Workload, queues: Mapping[str, Queue]) -> ReservationAccess:
        """Which reservations a workload may use, and how long it cannot be evicted."""
        if not self.live:
            return NO_ACCESS
        path = self._queue_path(workload.queue, queues)
        passes = sorted([each.name for each in self.live if each.admits(workload, path)])
        return ReservationAccess(tuple(passes), 0 if workload.preemptible else workload.time_limit_s or NEVER_S)

    def admits(self, reservation: Reservation, workload: Workload, queues: Mapping[str, Queue]) -> bool:
        """Whether the work may use the reservation, whatever the time is."""
        return reservation.admits(workload, self._queue_path(workload.queue, queues))

    def with_access(self, workload: Workload, request: Request, queues: Mapping[str, Queue]) -> Request:
        """The request of one of its roles, with what reservations add to it."""
        if not self.live and not workload.reservation:
            return request
        passes, holds_s = self.access_of(workload, queues)
        if not passes and not holds_s and not workload.reservation:
            return request
        return replace(request, reservation=workload.reservation, passes=passes, holds_s=holds_s)

    def _queue_path(self, queue: str, queues: Mapping[str, Queue]) -> tuple[str, ...]:
        """A queue and all above it; a loop ends where it closes."""
        if queue not in self._queue_paths:
            path, above = [], queue
            while above and above not in path:
                path.append(above)
                above = queues[above].parent if above in queues else ""
            self._queue_paths[queue] = tuple(path)
        return self._queue_paths[queue]

    def copy(self) -> "ReservationIndex":
        other = ReservationIndex()
        other.__dict__.update(self.__dict__)
        other.objects, other._queue_paths = dict(self.objects), dict(self._queue_paths)
        return other


def _precedence(reservation: Reservation) -> tuple[bool, tuple[int, int, str]]:
    """Exact devices before picked ones, which can move; then by rank."""
    return (reservation.gpus > 0, reservation.rank)


def _rows(claims: Iterable[DeviceReservation]) -> Rows:
    parts = [part for each in claims for part in (each.rows, each.whole)]
    found: Rows = np.unique(np.concatenate([np.zeros(0, np.intp), *parts]))
    return found


def reservation_changed(state: "ClusterState", event: ReservationChanged) -> None:
    rows = state.reservations.put(event.reservation, state.nodes)
    state.nodes.changed[rows] = state.version


def reservation_gone(state: "ClusterState", event: ReservationGone) -> None:
    state.reservations.drop(event.name)
