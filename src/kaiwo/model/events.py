"""The events that change the cluster's state, as typed values. The state does not depend on their order."""

import msgspec

from kaiwo.model.defragmentation import DefragmentationRun, StepProgress
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.model.performance import NodeSpeed, ProgressReport
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.recovery import Recovery
from kaiwo.model.request_mix import RequestPrices, SeenKind
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Pod, Workload


class NodeChanged(msgspec.Struct, gc=False, frozen=True, tag="node"):
    node: Node


class NodeGone(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="node-gone"):
    """A node was removed. Its pods stay in the state until they are gone, too."""

    name: str
    since_s: int = 0  # it is gone for certain since then, so nothing runs on it; 0: not known


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


class RecoveryChanged(msgspec.Struct, gc=False, frozen=True, tag="recovery"):
    """A workload lost pods to a failure, or gets them back in another way than before."""

    recovery: Recovery


class RecoveryGone(msgspec.Struct, gc=False, frozen=True, tag="recovery-gone"):
    """A workload has all its pods again."""

    workload: str


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


class RequestMixChanged(msgspec.Struct, gc=False, frozen=True, tag="request-mix"):
    """The whole mix of requests that was learned so far: the base of a journal, or known in advance."""

    kinds: tuple[SeenKind, ...]
    arrivals: int
    arrived_milli: int


class NodeFailuresSeen(msgspec.Struct, gc=False, frozen=True, tag="node-failures"):
    """How often nodes have failed, with old failures faded: the base of a journal has it."""

    weights: dict[str, int]


class ProgressReported(msgspec.Struct, gc=False, frozen=True, tag="progress"):
    """Running work, or one of its pods, said how fast it is."""

    progress: ProgressReport


class NodeSpeedsMeasured(msgspec.Struct, gc=False, frozen=True, tag="node-speeds"):
    """The speeds of these nodes changed: see `model.performance`."""

    speeds: dict[str, NodeSpeed]


class PortsMeasured(msgspec.Struct, gc=False, frozen=True, tag="ports"):
    """Network ports of these nodes went up or down, or have other traffic; none: nothing is known any more."""

    ports: dict[str, tuple[NetworkPort, ...]]


class GpuLoadsMeasured(msgspec.Struct, gc=False, frozen=True, tag="gpu-loads"):
    """The GPUs of these nodes are busier or less busy than before; none: nothing is known any more."""

    loads: dict[str, dict[str, int]]  # by node and GPU: how busy it is, in thousandths


class PricesChanged(msgspec.Struct, gc=False, frozen=True, tag="request-prices"):
    """What the mix of requests makes of free GPUs was computed anew: see gpus.prices."""

    prices: RequestPrices


class SharingRulesInUse(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, tag="sharing-rules"):
    """The policy's rule about who may share a GPU, and the words of all rules that have been in use."""

    everywhere: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class StartRefused(msgspec.Struct, gc=False, frozen=True, tag="start-refused"):
    """A plugin refused the place that a cycle gave to a workload. It waits until then, and is tried again."""

    workload: str
    plugin: str
    why: str
    until_s: int  # 0: that is over, because the plugin no longer takes part


class PoolsChanged(msgspec.Struct, gc=False, frozen=True, tag="pools"):
    """Resources that plugins count over all nodes together, such as floating licences: how much there is of each.

    The nodes of the same batch offer them as extended resources, each as much as the whole pool.
    """

    pools: dict[str, int]


class DefragmentationChanged(msgspec.Struct, gc=False, frozen=True, tag="defragmentation"):
    """A run of moves was asked for, is being aborted, or is over."""

    run: DefragmentationRun


class DefragmentationStepChanged(msgspec.Struct, gc=False, frozen=True, tag="defragmentation-step"):
    """Moves of one step were begun, or have ended."""

    progress: StepProgress


class ClockMoved(msgspec.Struct, gc=False, frozen=True, tag="clock-moved"):
    """The cluster's clock was set ahead or back. The objects of the same batch have their moved times already; times
    that only the state remembers move with this event."""

    by_s: int


Event = (
    NodeChanged | NodeGone | QueueChanged | QueueGone | WorkloadChanged | WorkloadGone | PodChanged | PodGone
    | NominationChanged | NominationGone | PlannedStartChanged | PlannedStartGone | ReservationChanged
    | ReservationGone | PastUsageChanged | StoppedForOthers | SharingRulesInUse | ClockMoved | TopologyChanged
    | TopologyGone | StartRefused | PoolsChanged | RecoveryChanged | RecoveryGone | RequestMixChanged | PricesChanged
    | NodeFailuresSeen | ProgressReported | NodeSpeedsMeasured | PortsMeasured | GpuLoadsMeasured
    | DefragmentationChanged | DefragmentationStepChanged
)  # fmt: skip
