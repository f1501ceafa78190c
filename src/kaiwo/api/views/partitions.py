"""Partition plans and their policy."""

from typing import Literal

import msgspec


class PartitionStepView(msgspec.Struct, frozen=True):
    """One change of a GPU's partition mode: planned, under way or done."""

    node: str
    gpu: str
    before: str  # SPX+NPS1
    after: str
    state: str  # planned | draining | due | changing; of the past: done | refused | busy | rolled-back | stuck
    waits_s: int = 0  # at most, for the work on it to end
    takes_s: int = 0  # for the change itself, after that
    idle_gpu_s: int = 0  # GPU-seconds that stay idle until it is done
    evicted_gpu_s: int = 0  # always 0: a change waits until the work on the GPU has ended
    at_s: int = 0  # when a past change ended
    reason: str = ""


class PlanNodeView(msgspec.Struct, frozen=True):
    """The state of one node under a PartitioningPlan."""

    node: str
    profile: str
    state: str  # done | changing | draining | pending | dry-run | refused
    reason: str


class PlanView(msgspec.Struct, frozen=True):
    """A PartitioningPlan."""

    name: str
    state: str  # on | dry-run | paused | off
    nodes: list[PlanNodeView]


class PartitionsView(msgspec.Struct, frozen=True):
    """The partition modes: what is planned, what is under way, and what was done."""

    policy: str  # off | dry-run | on
    carried_out_by: str
    as_of_s: int
    steps: list[PartitionStepView]  # the first thousand
    total: int
    idle_gpu_s: int  # GPU-seconds that the plan leaves idle
    unserved: list[str]  # waiting work that no allowed change would serve
    plans: list[PlanView]
    conflicts: list[str]
    history: list[PartitionStepView]


class PolicyForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether partition modes change for waiting work."""

    policy: Literal["off", "dry-run", "on"]
