"""A reservation: GPUs that are kept for somebody from a start to an end.

It names exact nodes or devices, or only how many GPUs; then the scheduler picks them and keeps the place.
"""

import enum
from datetime import UTC, datetime

import msgspec

from kaiwo.model.workload import Workload

LAST_CALENDAR_S = 253_402_300_799  # calendars end with the year 9999
NEVER_S = 1 << 50  # later than any clock: what has no end, or may hold its devices for ever


class ReservationPhase(enum.StrEnum):
    """Where a reservation is between its start and its end, by the clock of the snapshot."""

    PENDING = "pending"
    ACTIVE = "active"
    EXPIRED = "expired"


class AtEnd(enum.StrEnum):
    """What becomes of the owner's work on the GPUs when the reservation is over."""

    KEEP = "keep"  # it stays, as ordinary use
    EVICT = "evict"  # it is told to go, and waits again


class PhysicalDevice(msgspec.Struct, gc=False, frozen=True):
    """One physical GPU of a node; its partitions go with it."""

    node: str
    gpu: str


class ReservationOwner(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """For whom: exactly one of these; none: a pool for whoever names it."""

    queue: str = ""  # and every queue below it
    user: str = ""
    workload: str = ""  # `namespace/name`

    @property
    def words(self) -> str:
        """`queue lab`, `user ada`, or `whoever names it`."""
        for kind, name in (("queue", self.queue), ("user", self.user), ("workload", self.workload)):
            if name:
                return f"{kind} {name}"
        return "whoever names it"

    @property
    def is_pool(self) -> bool:
        """Nobody owns it."""
        return not (self.queue or self.user or self.workload)


class Reservation(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One of `gpus`, `nodes` and `devices` says what is kept."""

    name: str
    gpus: int = 0  # so many whole GPUs, which the scheduler picks
    gpu_models: tuple[str, ...] = ()  # any of these; empty: any model
    node_selector: tuple[tuple[str, str], ...] = ()  # labels of the nodes on which GPUs are picked
    nodes: tuple[str, ...] = ()  # these nodes whole, with their CPUs and memory
    devices: tuple[PhysicalDevice, ...] = ()  # exactly these
    owner: ReservationOwner = ReservationOwner()
    start_s: int = 0  # 0: at once
    end_s: int = 0  # 0: never
    at_end: AtEnd = AtEnd.KEEP
    created_s: int = 0
    picked: tuple[PhysicalDevice, ...] = ()  # which ones the scheduler keeps, when only a number was given

    @property
    def until_s(self) -> int:
        """When it is over."""
        return self.end_s or NEVER_S

    @property
    def kept(self) -> tuple[PhysicalDevice, ...]:
        """The devices that it names or that were picked; those of whole nodes the nodes know."""
        return self.devices or self.picked

    @property
    def rank(self) -> tuple[int, int, str]:
        """Of two that want the same device at the same time, the first has it."""
        return (self.start_s, self.created_s, self.name)

    def phase(self, now_s: int) -> ReservationPhase:
        """By the clock alone."""
        if now_s >= self.until_s:
            return ReservationPhase.EXPIRED
        return ReservationPhase.ACTIVE if now_s >= self.start_s else ReservationPhase.PENDING

    def overlaps(self, other: "Reservation") -> bool:
        """Some moment belongs to both."""
        return self.start_s < other.until_s and other.start_s < self.until_s

    def admits(self, workload: Workload, queues: tuple[str, ...]) -> bool:
        """The work may use it: the owner's, or of a pool, what names it. `queues`: its queue and those above."""
        owner = self.owner
        if owner.is_pool:
            return workload.reservation == self.name
        if owner.queue:
            return owner.queue in queues
        return workload.user == owner.user if owner.user else workload.name == owner.workload

    def times(self, now_s: int = 0) -> str:
        """`from 2026-01-01 08:00 UTC until 2026-01-02 08:00 UTC`, as far as that is still to come."""
        return times_words(self.start_s if self.start_s > now_s else 0, self.end_s)


class PickedDevices(msgspec.Struct, gc=False, frozen=True):
    """Which devices the scheduler keeps for a reservation of a number of GPUs."""

    reservation: str
    devices: tuple[PhysicalDevice, ...]


def clock_words(at_s: int) -> str:
    """A moment of the cluster's clock. A virtual clock may begin at 0: then there is no calendar."""
    if at_s < 10**9:
        return f"second {at_s} of the cluster's clock"
    if at_s > LAST_CALENDAR_S:
        return "a moment after the year 9999"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC").replace(":00 UTC", " UTC")


def times_words(start_s: int, end_s: int) -> str:
    """The same; 0: it has started, or has no end."""
    begin = f"from {clock_words(start_s)} " if start_s else ""
    return begin + (f"until {clock_words(end_s)}" if end_s else "without an end")


def check_reservation(reservation: Reservation) -> str:
    """What is wrong with it by itself, in one sentence; empty when it is right."""
    name = reservation.name
    ways = [way for way in ("gpus", "nodes", "devices") if getattr(reservation, way)]
    if len(ways) != 1:
        given = f"has {' and '.join(ways)}" if ways else "names no GPUs"
        return f"reservation {name} {given}; give exactly one of gpus (a number), nodes and devices"
    if reservation.gpus < 0:
        return f"reservation {name} is of {reservation.gpus} GPUs; ask for at least 1"
    if not reservation.gpus and (reservation.gpu_models or reservation.node_selector):
        return f"reservation {name} names exact {ways[0]}, so models and a node selector say nothing; leave them out"
    owner = reservation.owner
    if sum(map(bool, (owner.queue, owner.user, owner.workload))) > 1:
        return f"reservation {name} has several owners; name exactly one of queue, user and workload, or none"
    if reservation.end_s and reservation.end_s <= reservation.start_s:
        return f"reservation {name} ends before it begins; move its start or its end"
    return ""
