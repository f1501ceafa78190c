"""Queues and the arithmetic of their shares."""

import msgspec

from kaiwo.model.priority_cap import DEFAULT_MAX_PRIORITY
from kaiwo.model.queue import ReclaimStrategy, SharePolicy


class AmountView(msgspec.Struct, frozen=True):
    """One resource of a queue. -1: unlimited."""

    quota: int
    limit: int
    weight: int
    used: int
    waiting: int  # requested by waiting work
    fixed: int  # the part of `used` that may not be preempted
    share: int  # the fair share as of now; `/shares` has its arithmetic


class ModelAmountView(msgspec.Struct, frozen=True):
    """What a queue may have of one GPU model and has, in milli-GPU. -1: unlimited."""

    quota: int
    limit: int
    used: int
    fixed: int  # the part of it that may not be preempted
    share: int


class QueueView(msgspec.Struct, frozen=True):
    """One queue with its numbers. Used and waiting include the queues below it."""

    name: str
    parent: str
    display_name: str
    priority: int
    depth: int
    is_leaf: bool
    gpu_milli: AmountView
    cpu_milli: AmountView
    memory_mib: AmountView
    gpu_models: dict[str, ModelAmountView]
    running: int
    waiting: int
    policy: SharePolicy  # how its child queues divide; its own or inherited
    reclaim_strategy: ReclaimStrategy  # how much capacity it may reclaim
    min_runtime_s: int  # its work runs at least this long before another queue may evict it
    namespaces: list[str]  # namespaces that may submit to it; empty: all
    users: list[str]
    created_s: int
    max_priority: int = DEFAULT_MAX_PRIORITY  # of its work; its own or inherited
    share_with: list[str] = []  # who may share a GPU with its work, by its own rule; empty: anyone
    max_threads: int = 0  # percent of the multiprocessors for one share, by its own bound; 0: it has none
    default_threads: int = 0  # percent of the multiprocessors of a share that asks for none; 0: as its share
    max_share_mib: int = 0  # memory of one share on one device, by its own bound; 0: it has none


class TermsView(msgspec.Struct, frozen=True):
    """Every term of one resource's share: share = deserved + part + remainder. -1: unlimited."""

    resource: str  # gpu | cpu | memory, in milli-GPU, milli-CPU and MiB
    total: int  # what the queue and its siblings divide
    used: int
    fixed: int
    waiting: int
    wants: int  # used and waiting together
    quota: int
    limit: int
    deserved: int  # the least of quota, wants and limit
    offered: int  # the amount divided by weight, after all got what they deserve
    weight: int
    weights: int  # the sum over all that still wanted more; 0: nothing was divided by weight
    part: int  # offered * weight / weights, rounded down; or all that it wants
    remainder: int  # its part of what rounding left over
    share: int
    arithmetic: list[str]  # the same as sentences


class TurnView(msgspec.Struct, frozen=True):
    """A queue's turn among the siblings with waiting work. Its keys count in this order."""

    place: int  # 1: it is next
    of: int
    workload: str  # the workload of the queue that is tried first
    policy_key: int  # what the policy compares first: the priority or the submission time; else 0
    is_over_share: bool
    is_over_quota: bool  # with that workload
    priority: int
    has_no_share: bool  # it has no share of a resource that the workload would use
    dominant_with_it_ppm: int  # its dominant share with that workload
    dominant_ppm: int  # its dominant share now
    gpu_milli: int  # what the workload needs
    age: int  # 0: the oldest queue


class WaitingWorkloadView(msgspec.Struct, frozen=True):
    """One of the first workloads of a queue; the smallest keys come first."""

    workload: str
    priority: int
    submitted_s: int
    keys: list[list[int]]  # one row for each order plugin


class ShareView(msgspec.Struct, frozen=True):
    """The fair share of one queue, every term of every number."""

    queue: str
    parent: str
    depth: int
    policy: SharePolicy  # by which it and its siblings divide
    reclaim: str  # how much it may reclaim, in one sentence
    resources: list[TermsView]
    turn: TurnView | None  # None: nothing waits in it
    orders: list[str]  # the order plugins that sort its work
    line: list[WaitingWorkloadView]  # the first few
