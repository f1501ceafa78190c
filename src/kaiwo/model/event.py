"""What happened in a cluster, as typed values. The picture is a function of the events, whatever their order."""

import msgspec

from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.queue import Queue
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
)
