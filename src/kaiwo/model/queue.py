"""A queue: who may use how much, and how fairly it shares with its neighbours.

Also: Whose work a queue takes.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kaiwo.model.workload import Workload

UNLIMITED = -1


class QueueAmounts(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One resource of a queue, in that resource's integer unit (milli-GPU, milli-CPU, MiB)."""

    quota: int = 0  # deserved: what nobody takes away
    limit: int = UNLIMITED  # never more than this
    weight: int = 1  # part of what is left over, against the siblings


UNBOUNDED = QueueAmounts(quota=UNLIMITED)  # what nobody counts, nobody is over


class GpuModelAmounts(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a queue may use of one GPU model, in milli-GPU. A model that is not listed has no bounds of its own."""

    quota: int = UNLIMITED  # unlimited: the queue's GPU quota alone counts
    limit: int = UNLIMITED


class SharePolicy(enum.StrEnum):
    """How the queues right below a queue divide what is left when each has what it deserves."""

    DRF = "DRF"  # by priority, then by weight; whoever uses least of its dominant share goes first
    WEIGHTED_FAIR = "WeightedFair"  # by weight alone, whatever the priorities
    STRICT_PRIORITY = "StrictPriority"  # nothing for a lower priority while a higher one wants more
    FIFO = "FIFO"  # all that it wants to the queue whose work waits longest, then to the next


class PolicyRules(NamedTuple):
    """What a share policy means for the order and the shares of sibling queues."""

    by_priority: bool  # a higher priority is served first
    by_wait: bool = False  # whoever has waited longest is served first, before any priority
    serves_fully: bool = False  # the first gets all that it wants before the next gets anything


POLICY_RULES = {
    SharePolicy.DRF: PolicyRules(by_priority=True),
    SharePolicy.WEIGHTED_FAIR: PolicyRules(by_priority=False),
    SharePolicy.STRICT_PRIORITY: PolicyRules(by_priority=True, serves_fully=True),
    SharePolicy.FIFO: PolicyRules(by_priority=True, by_wait=True, serves_fully=True),
}


class ReclaimStrategy(enum.StrEnum):
    """How far a queue reaches when it takes capacity back from others."""

    AGGRESSIVE = "aggressive"  # up to its fair share
    CONSERVATIVE = "conservative"  # up to its quota
    NONE = "none"  # never


class Fairness(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What is not set is as in the queue above; at the top: DRF, aggressive, no minimum run time.

    `evictions_per_hour` is not handed down: each queue's own number bounds all that is below it.
    """

    policy: SharePolicy | None = None
    reclaim_strategy: ReclaimStrategy | None = None
    min_runtime_s: int | None = None  # work of this queue runs at least so long before another queue may evict it
    evictions_per_hour: int | None = None  # so many workloads, here and below, are stopped for others; None: any number


class Queue(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A leaf takes work; an inner queue bounds what is below it."""

    name: str
    parent: str = ""
    display_name: str = ""
    priority: int = 100
    gpu: QueueAmounts = QueueAmounts()
    cpu: QueueAmounts = UNBOUNDED
    memory: QueueAmounts = UNBOUNDED
    gpu_models: dict[str, GpuModelAmounts] = {}  # by model name
    fairness: Fairness = Fairness()
    namespaces: tuple[str, ...] = ()  # whose work it takes; empty: everybody's
    users: tuple[str, ...] = ()
    created_s: int = 0  # the older of two equal queues goes first


DEFAULT_QUEUE = "default"
UNBOUNDED_DEFAULT_QUEUE = Queue(
    DEFAULT_QUEUE, gpu=UNBOUNDED
)  # there before anybody made a queue: whatever comes may run
DEFAULT_FAIRNESS = Fairness(SharePolicy.DRF, ReclaimStrategy.AGGRESSIVE, 0)


def queue_that_refuses(
    queues: Mapping[str, Queue], workload: Workload, knows_user: bool = True
) -> tuple[Queue, str] | None:
    """Its queue and every queue above that must take work of its namespace and, where he is known, of its user."""
    namespace = workload.name.partition("/")[0]
    at, seen = workload.queue, set[str]()
    while (queue := queues.get(at)) is not None and at not in seen:
        seen.add(at)  # a cluster may hold a circle that nobody refused
        if queue.namespaces and namespace not in queue.namespaces:
            return queue, "namespaces"
        if knows_user and queue.users and workload.user not in queue.users:
            return queue, "users"
        at = queue.parent
    return None
