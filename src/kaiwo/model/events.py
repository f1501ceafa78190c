"""The events that change the cluster's state, as typed values. The state does not depend on their order."""

import msgspec

from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Pod, Workload


class NodeChanged(msgspec.Struct, gc=False, frozen=True, tag="node"):
    node: Node


class NodeGone(msgspec.Struct, gc=False, frozen=True, tag="node-gone"):
    """A node was removed. Its pods stay in the state until they are gone, too."""

    name: str


class QueueChanged(msgspec.Struct, gc=False, frozen=True, tag="queue"):
    queue: Queue


class QueueGone(msgspec.Struct, gc=False, frozen=True, tag="queue-gone"):
    name: str


class WorkloadChanged(msgspec.Struct, gc=False, frozen=True, tag="workload"):
    workload: Workload


class WorkloadGone(msgspec.Struct, gc=False, frozen=True, tag="workload-gone"):
    """A workload ended or was cancelled: it needs no more pods."""

    name: str
    run_s: int = 0  # how long it ran, if it succeeded in one attempt; 0: it did not, or that is unknown


class PodChanged(msgspec.Struct, gc=False, frozen=True, tag="pod"):
    pod: Pod


class PodGone(msgspec.Struct, gc=False, frozen=True, tag="pod-gone"):
    """A pod holds nothing any more. If its workload still needs it, it waits again."""

    workload: str
    name: str


class NominationChanged(msgspec.Struct, gc=False, frozen=True, tag="nomination"):
    nomination: Nomination


class NominationGone(msgspec.Struct, gc=False, frozen=True, tag="nomination-gone"):
    workload: str
    pod: str


class PlannedStartChanged(msgspec.Struct, gc=False, frozen=True, tag="promise"):
    promise: PlannedStart


class PlannedStartGone(msgspec.Struct, gc=False, frozen=True, tag="promise-gone"):
    workload: str


class ReservationChanged(msgspec.Struct, gc=False, frozen=True, tag="reservation"):
    reservation: Reservation


class ReservationGone(msgspec.Struct, gc=False, frozen=True, tag="reservation-gone"):
    name: str


class TopologyChanged(msgspec.Struct, gc=False, frozen=True, tag="topology"):
    """A topology is new, or was read again."""

    topology: Topology


class TopologyGone(msgspec.Struct, gc=False, frozen=True, tag="topology-gone"):
    name: str


class StoppedForOthers(msgspec.Struct, gc=False, frozen=True, tag="stopped-for-others"):
    """A workload, or a part of it, was evicted so that others may start."""

    workload: str
    at_s: int
    queues: tuple[str, ...] = ()  # whose eviction budget it counts against: see Fairness.evictions_per_hour
    is_moved: bool = False  # the same plan nominates another place for all of it


class PastUsageChanged(msgspec.Struct, gc=False, frozen=True, tag="past-use"):
    """How much of the cluster the queues used recently, and how strongly that counts. The usage tracker sends it."""

    parts: dict[str, tuple[int, ...]]  # by queue, one per resource: see queues.past_usage
    strength_milli: int


class SharingRulesInUse(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="sharing-rules"):
    """The policy's rule about who may share a GPU, and the words of all rules that have been in use."""

    everywhere: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class ClockMoved(msgspec.Struct, gc=False, frozen=True, tag="clock-moved"):
    """The cluster's clock was set ahead or back. The objects of the same batch have their moved times already; times
    that only the state remembers move with this event."""

    by_s: int


Event = (
    NodeChanged | NodeGone | QueueChanged | QueueGone | WorkloadChanged | WorkloadGone | PodChanged | PodGone
    | NominationChanged | NominationGone | PlannedStartChanged | PlannedStartGone | ReservationChanged
    | ReservationGone | PastUsageChanged | StoppedForOthers | SharingRulesInUse | ClockMoved | TopologyChanged
    | TopologyGone
)  # fmt: skip
