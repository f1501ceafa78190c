"""The past of workloads: what happened to one, what it used of what it held, and the list of those that ended."""

import msgspec

from kaiwo.api.views.workloads import PastAttemptView


class MomentView(msgspec.Struct, frozen=True):
    """Something that happened, or that lasted for a time."""

    kind: str  # submitted | waited | planned | unwatched | started | evicted | stopped | ended
    at_s: int
    until_s: int  # 0: it happened at once, or it still lasts
    sentence: str
    attempt: int = 0  # which one it is about; 0: none
    is_over: bool = True  # False: it still lasts


class EvictionView(msgspec.Struct, frozen=True):
    """The scheduler stopped pods of it for others."""

    at_s: int
    cause: str
    pods: int
    by: str
    beneficiary: str  # the workload or the reservation that it made room for; empty: none
    beneficiary_user: str
    beneficiary_queue: str
    nodes: list[str]
    lost_gpu_s: int  # GPU-seconds of work that was not saved


class EfficiencyView(msgspec.Struct, frozen=True):
    """What it used of what it held. Thousandths of a GPU times seconds; null: nobody knows."""

    waited_s: int
    ran_s: int  # all attempts together
    held_gpu_milli_s: int
    measured_gpu_milli_s: int  # the part of it whose use was measured
    used_gpu_milli_s: int | None  # of the measured part
    wasted_gpu_milli_s: int | None  # the rest of the measured part
    used_percent: int | None
    lost_gpu_s: int  # work that was not saved when it was stopped
    asked_memory_mib: int  # the most of one of its pods; 0: it asked for none
    peak_memory_mib: int | None


class HistoryView(msgspec.Struct, frozen=True):
    """All that is known of the past of one submission of a workload."""

    workload: str
    submission: int
    submissions: list[int]  # those of its name that are kept, the first one first
    queue: str
    user: str
    state: str  # empty: it ended, and nobody knows how
    submitted_s: int
    started_s: int  # the last time; 0: never
    ended_s: int  # 0: it has not
    exit_code: int | None  # null: it has not ended, or nobody knows
    message: str
    now_s: int
    timeline: list[MomentView]
    attempts: list[PastAttemptView]
    evictions: list[EvictionView]
    efficiency: EfficiencyView
    unknown: list[str]  # what is not known, and why, in sentences


class EndedWorkView(msgspec.Struct, frozen=True):
    """One submission of a workload that has ended."""

    workload: str
    submission: int
    queue: str
    user: str
    state: str  # empty: nobody knows how it ended
    gpu_milli: int  # that it asked for
    submitted_s: int
    started_s: int
    ended_s: int
    attempts: int
    evictions: int
    exit_code: int
    message: str
    held_gpu_milli_s: int
    measured_gpu_milli_s: int
    used_gpu_milli_s: int
