"""A reservation: GPUs kept for an owner from a start to an end.

It names exact nodes or devices, or only a number of GPUs: then the scheduler picks them and keeps them.
"""

import enum
from datetime import UTC, datetime

import msgspec

from kaiwo.model.workload import Workload

LAST_CALENDAR_S = 253_402_300_799  # calendars end with the year 9999
NEVER_S = 1 << 50  # later than any clock: for what has no end


class ReservationPhase(enum.StrEnum):
    """Where a reservation is in its life, by the clock of the snapshot."""

    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"


class AtEnd(enum.StrEnum):
    """What happens to the owner's work on the GPUs when the reservation ends."""

    KEEP = "keep"  # it stays, as ordinary usage
    EVICT = "evict"  # it is evicted, and waits again


class PhysicalDevice(msgspec.Struct, gc=False, frozen=True):
    """One physical GPU of a node; its partitions go with it."""

    node: str
    gpu: str


class ReservationOwner(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """At most one of these is set. Without an owner the reservation is a pool for all work that names it."""

    queue: str = ""  # and every queue below it
    user: str = ""
    workload: str = ""  # `namespace/name`

    @property
    def kind_and_name(self) -> tuple[str, str]:
        """`("queue", "lab")`; `("pool", "")` when it has no owner."""
        for kind in ("queue", "user", "workload"):
            if name := getattr(self, kind):
                return kind, name
        return "pool", ""

    @property
    def words(self) -> str:
        return "all work that names it" if self.is_pool else " ".join(self.kind_and_name)

    @property
    def is_pool(self) -> bool:
        return not (self.queue or self.user or self.workload)


class Reservation(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Exactly one of `gpus`, `nodes` and `devices` says what is reserved."""

    name: str
    gpus: int = 0  # this many whole GPUs, which the scheduler picks
    gpu_models: tuple[str, ...] = ()  # any of these; empty: any model
    node_selector: tuple[tuple[str, str], ...] = ()  # where GPUs are picked
    nodes: tuple[str, ...] = ()  # these nodes whole, with their CPUs and memory
    devices: tuple[PhysicalDevice, ...] = ()  # exactly these
    owner: ReservationOwner = ReservationOwner()
    start_s: int = 0  # 0: at once
    end_s: int = 0  # 0: never
    at_end: AtEnd = AtEnd.KEEP
    created_s: int = 0
    picked: tuple[PhysicalDevice, ...] = ()  # by the scheduler, when only a number was given

    @property
    def until_s(self) -> int:
        return self.end_s or NEVER_S

    @property
    def kept(self) -> tuple[PhysicalDevice, ...]:
        """The devices that it names or that were picked; without those of whole nodes."""
        return self.devices or self.picked

    @property
    def rank(self) -> tuple[int, int, str]:
        """When two want the same device at the same time, the one with the lower rank gets it."""
        return (self.start_s, self.created_s, self.name)

    def phase(self, now_s: int) -> ReservationPhase:
        if now_s >= self.until_s:
            return ReservationPhase.EXPIRED
        return ReservationPhase.ACTIVE if now_s >= self.start_s else ReservationPhase.PENDING

    def overlaps(self, other: "Reservation") -> bool:
        return self.start_s < other.until_s and other.start_s < self.until_s

    def admits(self, workload: Workload, queues: tuple[str, ...]) -> bool:
        """Whether a workload may use it. A pool is for work that names it. `queues`: its queue and those above."""
        owner = self.owner
        if owner.is_pool:
            return workload.reservation == self.name
        if owner.queue:
            return owner.queue in queues
        return workload.user == owner.user if owner.user else workload.name == owner.workload

    def times(self, now_s: int = 0) -> str:
        """`from 2026-01-01 08:00 UTC until 2026-01-02 08:00 UTC`; the start only while it is in the future."""
        return times_words(self.start_s if self.start_s > now_s else 0, self.end_s)


def is_same_reservation(reservation: Reservation, before: Reservation | None) -> bool:
    """They are equal, apart from what the cluster adds: the time of creation and the devices picked."""
    if before is None:
        return False
    return msgspec.structs.replace(reservation, created_s=before.created_s, picked=before.picked) == before


class PickedDevices(msgspec.Struct, gc=False, frozen=True):
    reservation: str
    devices: tuple[PhysicalDevice, ...]


def clock_words(at_s: int) -> str:
    """A time of the cluster's clock. A virtual clock may start at 0: then there is no calendar."""
    if at_s < 10**9:
        return f"second {at_s} of the cluster's clock"
    if at_s > LAST_CALENDAR_S:
        return "a moment after the year 9999"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC").replace(":00 UTC", " UTC")


def times_words(start_s: int, end_s: int) -> str:
    begin = f"from {clock_words(start_s)} " if start_s else ""
    return begin + (f"until {clock_words(end_s)}" if end_s else "without an end")


def check_reservation(reservation: Reservation) -> str:
    """What is wrong with it by itself, in one sentence; empty when nothing is."""
    name = reservation.name
    ways = [way for way in ("gpus", "nodes", "devices") if getattr(reservation, way)]
    if len(ways) != 1:
        given = f"has {' and '.join(ways)}" if ways else "names no GPUs"
        return f"reservation {name} {given}; give exactly one of gpus (a number), nodes and devices"
    if reservation.gpus < 0:
        return f"reservation {name} asks for {reservation.gpus} GPUs; ask for at least 1"
    if not reservation.gpus and (reservation.gpu_models or reservation.node_selector):
        return f"reservation {name} names exact {ways[0]}, so models and a node selector have no effect; leave them out"
    owner = reservation.owner
    if sum(map(bool, (owner.queue, owner.user, owner.workload))) > 1:
        return f"reservation {name} has several owners; name exactly one of queue, user and workload, or none"
    if reservation.end_s and reservation.end_s <= reservation.start_s:
        return f"reservation {name} ends before it begins; move its start or its end"
    return ""
