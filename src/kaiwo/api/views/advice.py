"""Advice, capacity plans, trends and adjustments of requests."""

import msgspec


class ResizedView(msgspec.Struct, frozen=True):
    """One amount of a request, and why it changes."""

    amount: str  # gpu_milli, gpu_mib, cpu_milli or memory_mib, of one pod; of GPUs: of each device
    asked: int
    peak: int  # the most that the last runs used
    expected: int  # the peak, and further growth
    given: int
    runs: int  # that were measured


class AdviceView(msgspec.Struct, frozen=True):
    """One change that a forward run of the scheduler confirmed. Lists of two: without the change, then with it."""

    kind: str
    subject: str  # a queue, a node, a workload, or the name of recurring work
    what: str  # what to do
    gain: str  # what it brings
    evidence: str  # how that was found out
    command: str  # that makes the change, or shows it once more; empty: there is none
    wait_s: list[int]  # of all work that waits or arrives within a day, together
    started_now: list[int]
    held_gpu_s: list[int]
    sooner: int  # workloads that start sooner
    later: int
    sizes: list[ResizedView]  # of right-size


class AdviceListView(msgspec.Struct, frozen=True):
    """The largest gain first."""

    as_of_s: int
    items: list[AdviceView]
    tried: int  # changes that were run forward
    refused: int  # of these, changes that help nobody, or harm somebody
    is_whole: bool  # False: the time for it ended before everything was tried
    is_pending: bool = False  # nothing is known yet: ask again
    hidden: str = ""  # what is not shown to you, and why; empty: you see everything


class CapacityOutlookView(msgspec.Struct, frozen=True):
    """What waiting would be like with some more nodes."""

    model: str  # empty: the cluster as it is
    add_nodes: int
    gpus: int  # of the cluster, with them
    p50_wait_s: int
    p90_wait_s: int
    mean_wait_s: int
    started: float  # the part of the work that starts before the run ends
    utilisation: float


class CapacityView(msgspec.Struct, frozen=True):
    """The same demand with each choice; the cluster as it is comes first."""

    as_of_s: int
    outlooks: list[CapacityOutlookView]
    waiting: int  # workloads that wait now
    arriving: int  # that are expected within a day
    growth_percent: int
    unknown: int  # workloads whose run time nobody knows: they are left out
    is_whole: bool
    is_pending: bool = False  # it is not computed yet: ask again


class TrendView(msgspec.Struct, frozen=True):
    """One measure, this week and the week before, or the two halves of a shorter history."""

    kind: str
    name: str
    measure: str
    now: int
    before: int
    span_h: int
    per_day: int
    full_in_days: int | None  # until it reaches the capacity or the quota, if it goes on like this


class TrendsView(msgspec.Struct, frozen=True):
    """Of the cluster and of its queues; what has too little history is left out."""

    as_of_s: int
    items: list[TrendView]
    days: int  # of history that was looked at


class AdjustmentView(msgspec.Struct, frozen=True):
    """Something that Kaiwo did about what a workload asked for, and why."""

    at_s: int
    workload: str
    submission: int
    user: str
    queue: str
    kind: str
    reason: str
    sizes: list[ResizedView]
    refused: str  # why the cluster did not do it; empty: it did


class AdjustmentListView(msgspec.Struct, frozen=True):
    """The newest first."""

    now_s: int
    mode: str  # of the policy: off, advise or act
    idle_action: str
    items: list[AdjustmentView]
    kinds: int  # of recurring work whose use is known
    hidden: str = ""
