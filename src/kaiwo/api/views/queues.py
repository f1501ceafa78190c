"""Queues, and all terms of their fair shares."""

import msgspec

from kaiwo.model.queue import ReclaimStrategy, SharePolicy


class AmountView(msgspec.Struct, frozen=True):
    """One resource of a queue. -1: unlimited."""

    quota: int
    limit: int
    weight: int
    used: int
    waiting: int  # asked for by work that waits for a place
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
    policy: SharePolicy  # how the queues right below it divide; its own or that of a queue above
    reclaim_strategy: ReclaimStrategy  # how much capacity it may reclaim
    min_runtime_s: int  # its work runs at least this long before another queue may evict it
    namespaces: list[str]  # that may submit to it; empty: all
    users: list[str]
    created_s: int


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
    offered: int  # what was divided by weight when everybody had what it deserves
    weight: int
    weights: int  # of all who still wanted more; 0: nothing had to be divided by weight
    part: int  # offered * weight / weights, rounded down; or all that it wants
    remainder: int  # of what rounding left over
    share: int
    arithmetic: list[str]  # the same as sentences


class TurnView(msgspec.Struct, frozen=True):
    """A queue's turn among the siblings with waiting work. Its keys count in this order."""

    place: int  # 1: it is next
    of: int
    workload: str  # which is tried first in it
    policy_key: int  # what the policy puts first: priority, or since when it waits; else 0
    is_over_share: bool
    is_over_quota: bool  # with that workload
    priority: int
    has_no_share: bool  # of something that it would use
    dominant_with_it_ppm: int  # the largest part of what it is entitled to that it would use
    dominant_ppm: int  # and uses now
    gpu_milli: int  # that the workload needs
    age: int  # 0: the oldest queue


class WaitingWorkloadView(msgspec.Struct, frozen=True):
    """One of the first workloads of a queue; the smallest keys come first."""

    workload: str
    priority: int
    submitted_s: int
    keys: list[list[int]]  # one row an order plugin


class ShareView(msgspec.Struct, frozen=True):
    """The fair share of one queue, every term of every number."""

    queue: str
    parent: str
    depth: int
    policy: SharePolicy  # by which it and its siblings divide
    reclaim: str  # how far it may reach, in one sentence
    resources: list[TermsView]
    turn: TurnView | None  # None: nobody waits in it
    orders: list[str]  # the order plugins by which its work stands in line
    line: list[WaitingWorkloadView]  # the first few
