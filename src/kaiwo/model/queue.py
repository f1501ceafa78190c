"""A queue: how much its work may use, how it shares with its siblings, and which users and namespaces may use it."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from kaiwo.model.gpus.gpu import ANY_MIB, NO_LIMITS, ShareLimits, ShareRule
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload

UNLIMITED = -1


class QueueAmounts(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One resource of a queue, in that resource's integer unit (milli-GPU, milli-CPU, MiB)."""

    quota: int = 0  # deserved: others cannot reclaim it
    limit: int = UNLIMITED  # never more than this
    weight: int = 1  # for its part of the surplus, against its siblings


UNBOUNDED = QueueAmounts(quota=UNLIMITED)


class GpuModelAmounts(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What a queue may use of one GPU model, in milli-GPU. A model that is not listed is not bounded."""

    quota: int = UNLIMITED  # unlimited: the queue's GPU quota alone counts
    limit: int = UNLIMITED


class SharePolicy(enum.StrEnum):
    """How the queues directly below a queue divide what is left when each has what it deserves."""

    DRF = "DRF"  # by priority, then by weight; the queue that uses least of its dominant share is first
    WEIGHTED_FAIR = "WeightedFair"  # by weight alone
    STRICT_PRIORITY = "StrictPriority"  # nothing for a lower priority while a higher one wants more
    FIFO = "FIFO"  # the queue whose work has waited longest gets all it wants, then the next


class PolicyRules(NamedTuple):
    by_priority: bool  # a higher priority is served first
    by_wait: bool = False  # the longest wait is served first, before any priority
    serves_fully: bool = False  # the first gets all that it wants before the next gets anything


POLICY_RULES = {
    SharePolicy.DRF: PolicyRules(by_priority=True),
    SharePolicy.WEIGHTED_FAIR: PolicyRules(by_priority=False),
    SharePolicy.STRICT_PRIORITY: PolicyRules(by_priority=True, serves_fully=True),
    SharePolicy.FIFO: PolicyRules(by_priority=True, by_wait=True, serves_fully=True),
}


class ReclaimStrategy(enum.StrEnum):
    """How much a queue may reclaim from others."""

    AGGRESSIVE = "aggressive"  # up to its fair share
    CONSERVATIVE = "conservative"  # up to its quota
    NONE = "none"  # never


class Fairness(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What is not set is inherited from the queue above; at the top: DRF, aggressive, no minimum run time.

    `evictions_per_hour` is not inherited: each queue's own number bounds everything below it.
    """

    policy: SharePolicy | None = None
    reclaim_strategy: ReclaimStrategy | None = None
    min_runtime_s: int | None = None  # its work runs at least this long before another queue may evict it
    evictions_per_hour: int | None = None  # at most this many workloads, here and below, are evicted for others


class Queue(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A leaf takes work; an inner queue bounds the queues below it."""

    name: str
    parent: str = ""
    display_name: str = ""
    priority: int = 100
    gpu: QueueAmounts = QueueAmounts()
    cpu: QueueAmounts = UNBOUNDED
    memory: QueueAmounts = UNBOUNDED
    gpu_models: dict[str, GpuModelAmounts] = {}  # by model name
    fairness: Fairness = Fairness()
    namespaces: tuple[str, ...] = ()  # that may use it; empty: all
    users: tuple[str, ...] = ()
    share_with: ShareRule = ()  # with whom its work shares a GPU, and that of the queues below it; empty: anyone
    max_threads_milli: int = 0  # of the multiprocessors, for one share; 0: as the queue above, at the top its share
    default_threads_milli: int = 0  # of shares by MPS that do not ask for any; 0: as the queue above
    max_share_mib: int = 0  # the memory of one share on one device; 0: as the queue above, at the top all of it
    created_s: int = 0  # of two equal queues the older is first
    is_implicit: bool = False  # the default queue as long as nobody has defined it
    max_priority: int | None = None  # of its work, here and below; None: see `priority_cap`
    strategy: str = (
        ""  # how nodes and devices are chosen, here and below: see STRATEGY_PLACEMENTS; empty: by the policy
    )


DEFAULT_QUEUE = "default"
UNBOUNDED_DEFAULT_QUEUE = Queue(DEFAULT_QUEUE, gpu=UNBOUNDED, is_implicit=True)  # alone, it has everything
LEFTOVER_DEFAULT_QUEUE = Queue(DEFAULT_QUEUE, is_implicit=True)  # beside others, its work runs on what they leave
DEFAULT_FAIRNESS = Fairness(SharePolicy.DRF, ReclaimStrategy.AGGRESSIVE, 0)


def implicit_default_queue(names: Iterable[str]) -> Queue:
    """The default queue that nobody has defined, among queues with these names.

    A quota of its own would void those of all others: what one queue deserves cannot be reclaimed for another.
    """
    return UNBOUNDED_DEFAULT_QUEUE if all(name == DEFAULT_QUEUE for name in names) else LEFTOVER_DEFAULT_QUEUE


def is_same_queue(queue: Queue, before: Queue | None) -> bool:
    """They are equal, apart from their age."""
    return before is not None and msgspec.structs.replace(queue, created_s=before.created_s) == before


def is_listed(queues: Mapping[str, Queue], workload: Workload) -> bool:
    """Whether its queue, or one above it, lists its user or its namespace: somebody said that the queue is for them.

    A queue that lists nobody takes everybody's work, but nobody said that it is theirs to use.
    """
    namespace = workload.name.partition("/")[0]
    at, seen = workload.queue, set[str]()
    while (queue := queues.get(at)) is not None and at not in seen:
        seen.add(at)
        if namespace in queue.namespaces or (workload.user and workload.user in queue.users):
            return True
        at = queue.parent
    return False


def queue_that_refuses(
    queues: Mapping[str, Queue], workload: Workload, knows_user: bool = True
) -> tuple[Queue, str] | None:
    """The first queue from its own upwards that does not accept its namespace or user, and the field that refuses."""
    # Asked about every workload that comes: so without `queue_path`, which takes five times as long.
    name = workload.queue
    for _ in range(len(queues)):  # no path is longer, even if the queues form a loop that was not refused
        queue = queues.get(name)
        if queue is None:
            return None
        if queue.namespaces and workload.name.partition("/")[0] not in queue.namespaces:
            return queue, "namespaces"
        if knows_user and queue.users and workload.user not in queue.users:
            return queue, "users"
        name = queue.parent
    return None


def queue_path(queues: Mapping[str, Queue], name: str) -> Iterator[Queue]:
    """The queue and those above it, from its own upwards."""
    seen = set[str]()
    while (queue := queues.get(name)) is not None and name not in seen:
        seen.add(name)  # the queues may form a loop that was not refused
        yield queue
        name = queue.parent


class ThreadBound(NamedTuple):
    """The most threads of one share in a queue beyond the share itself, and the queue that says so."""

    milli: int = 0
    queue: str = ""

    def capped(self, request: Request) -> int:
        """The threads that the request may have: fewer than its share are always allowed."""
        return min(request.threads_milli, max(request.fraction_milli, self.milli))


def thread_bound(queues: Mapping[str, Queue], name: str) -> ThreadBound:
    """The lowest bound of the queue and of those above it that have one."""
    found = [ThreadBound(q.max_threads_milli, q.name) for q in queue_path(queues, name) if q.max_threads_milli]
    return min(found, default=ThreadBound())


def share_limits(queues: Mapping[str, Queue], name: str) -> ShareLimits:
    """What the queue and those above it say about one share: the lowest bound, and the default of the nearest."""
    path = list(queue_path(queues, name))
    sizes = [(queue.max_share_mib, queue.name) for queue in path if queue.max_share_mib]
    defaults = [queue.default_threads_milli for queue in path if queue.default_threads_milli]
    if not sizes and not defaults and not any(queue.max_threads_milli for queue in path):
        return NO_LIMITS
    most_mib, by = min(sizes, default=(ANY_MIB, ""))
    return ShareLimits(most_mib, by, thread_bound(queues, name).milli, defaults[0] if defaults else 0)
