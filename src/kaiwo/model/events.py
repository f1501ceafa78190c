"""What happened in a cluster, as typed values. The picture is a function of the events, whatever their order."""

import msgspec

from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Pod, Workload


class NodeChanged(msgspec.Struct, gc=False, frozen=True, tag="node"):
    """A node is there, or is different now."""

    node: Node


class NodeGone(msgspec.Struct, gc=False, frozen=True, tag="node-gone"):
    """A node left. Its pods stay on the books until they are gone too."""

    name: str


class QueueChanged(msgspec.Struct, gc=False, frozen=True, tag="queue"):
    """A queue is there, or is different now."""

    queue: Queue


class QueueGone(msgspec.Struct, gc=False, frozen=True, tag="queue-gone"):
    """A queue was removed."""

    name: str


class WorkloadChanged(msgspec.Struct, gc=False, frozen=True, tag="workload"):
    """A workload was submitted, or its wishes changed."""

    workload: Workload


class WorkloadGone(msgspec.Struct, gc=False, frozen=True, tag="workload-gone"):
    """A workload ended or was cancelled: it wants no more pods."""

    name: str
    run_s: int = 0  # how long it ran, if it did what it was for in one attempt; 0: it did not, or nobody knows


class PodChanged(msgspec.Struct, gc=False, frozen=True, tag="pod"):
    """A pod holds a place, or its phase changed."""

    pod: Pod


class PodGone(msgspec.Struct, gc=False, frozen=True, tag="pod-gone"):
    """A pod holds nothing any more. If its workload still wants it, it waits again."""

    workload: str
    name: str


class NominationChanged(msgspec.Struct, gc=False, frozen=True, tag="nomination"):
    """Space is kept for a waiting pod."""

    nomination: Nomination


class NominationGone(msgspec.Struct, gc=False, frozen=True, tag="nomination-gone"):
    """The space is no longer kept."""

    workload: str
    pod: str


class PlannedStartChanged(msgspec.Struct, gc=False, frozen=True, tag="promise"):
    """A waiting workload has a planned start, or another one."""

    promise: PlannedStart


class PlannedStartGone(msgspec.Struct, gc=False, frozen=True, tag="promise-gone"):
    """It has none any more."""

    workload: str


class ReservationChanged(msgspec.Struct, gc=False, frozen=True, tag="reservation"):
    """GPUs are reserved, or reserved differently, or the scheduler picked them."""

    reservation: Reservation


class ReservationGone(msgspec.Struct, gc=False, frozen=True, tag="reservation-gone"):
    """A reservation was removed."""

    name: str


class StoppedForOthers(msgspec.Struct, gc=False, frozen=True, tag="stopped-for-others"):
    """A workload, or a part of it, was told to go so that others may start."""

    workload: str
    at_s: int
    queues: tuple[str, ...] = ()  # those that count it: see Fairness.evictions_per_hour
    is_moved: bool = False  # the same plan keeps another place for all of it


class PastUsageChanged(msgspec.Struct, gc=False, frozen=True, tag="past-use"):
    """How much of the cluster the queues used lately, and how much that counts. Whoever keeps the time tells it."""

    parts: dict[str, tuple[int, ...]]  # by queue, one a resource: see queues.usage
    strength_milli: int


Event = (
    NodeChanged
    | NodeGone
    | QueueChanged
    | QueueGone
    | WorkloadChanged
    | WorkloadGone
    | PodChanged
    | PodGone
    | NominationChanged
    | NominationGone
    | PlannedStartChanged
    | PlannedStartGone
    | ReservationChanged
    | ReservationGone
    | PastUsageChanged
    | StoppedForOthers
)
