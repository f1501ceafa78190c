"""Work that somebody submitted: one or more roles of equal pods, and the pods that exist.

A workload is one decision: its roles' minimums start together or not at all.
"""

import enum
from collections.abc import Container, Iterable

import msgspec

from kaiwo.model.gpu import Share
from kaiwo.model.neighbours import Neighbours
from kaiwo.model.request import Request
from kaiwo.model.subgroup import SubGroup, is_whole


class Role(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """`count` equal pods, of which at least `minimum` run together."""

    request: Request
    name: str = "main"
    count: int = 1
    minimum: int = -1  # -1: all of them
    group: str = ""  # the sub-group that it is a part of; empty: of the workload itself
    leads: bool = False  # the others need it first: it starts before them, and is the last that can be spared

    @property
    def needed(self) -> int:
        """The pods without which the workload does not start."""
        return self.count if self.minimum < 0 else min(self.minimum, self.count)


class Workload(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What the scheduler must know of a piece of work. How it is run is the cluster's business."""

    name: str  # `namespace/name`, unique among the living
    roles: tuple[Role, ...]
    queue: str = "default"
    user: str = ""
    kind: str = "batch"  # training | batch | inference | notebook
    priority: int = 0
    preemptible: bool = True
    submitted_s: int = 0
    held: bool = False
    after: tuple[str, ...] = ()  # workloads that must succeed first and have not yet
    after_failed: tuple[str, ...] = ()  # workloads that should have succeeded first and never will
    not_before_s: int = 0  # do not try before: a back-off, or a start time somebody asked for
    not_before_why: str = ""
    time_limit_s: int = 0  # 0: none
    estimate_s: int = 0  # the owner's own guess; 0: none
    preemption_delay_s: int = 0  # it waits so long before others are stopped for it
    checkpoint_s: int = 0  # when it last saved its work; 0: never
    restart_s: int = 0  # how long it takes, once stopped, to be where it was when it last saved its work
    stale_grace_s: int | None = None  # how long it may run below its minimum; None: as the policy says; -1: for ever
    broken_since_s: int = 0  # since when fewer of its pods run than must; 0: it is whole, or has not started
    labels: dict[str, str] = {}
    stops_others: bool = True  # others may be stopped for it; else it waits for room
    may_go: int = -1  # of its running pods, how many disruption budgets let go at once; -1: nobody counts them
    stays_why: str = ""  # why none of them may go, where that is more than a budget's count
    reservation: str = ""  # the pool or reservation on whose GPUs alone it runs; empty: wherever it may
    expires_s: int = 0  # its allocation is released then, running or not; 0: never
    learned_s: int = 0  # how long runs like it took, by history; 0: nobody knows
    groups: tuple[SubGroup, ...] = ()  # sub-groups of which only some must run; empty: every role must

    @property
    def pods(self) -> int:
        """How many pods it has when complete."""
        return sum(role.count for role in self.roles)

    @property
    def is_gang(self) -> bool:
        """More than one pod must start together."""
        return sum(role.needed for role in self.roles) > 1


class Phase(enum.StrEnum):
    """Where a pod is between the decision and the end."""

    ASSUMED = "assumed"  # we decided it, the cluster has not confirmed
    RUNNING = "running"
    RELEASING = "releasing"  # told to go, still holds its devices
    STUCK = "stuck"  # told to go long ago: it holds its devices, and nobody counts on them
    DONE = "done"  # succeeded; holds nothing and is not started again


LEAVING = (Phase.RELEASING, Phase.STUCK)


class Pod(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One pod on one node with what it holds there. Self-contained: its workload may be unknown (foreign pods)."""

    workload: str
    name: str  # unique in its workload: `role-index`
    node: str
    phase: Phase = Phase.RUNNING
    devices: tuple[Share, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    extended: tuple[tuple[str, int], ...] = ()
    since_s: int = 0
    neighbours: Neighbours | None = None
    until_s: int = 0  # it fills a gap before a planned start: see `Start`
    beside: str = ""  # what it is to those with whom it shares devices: see `Request`


def pod_name(role: Role, index: int) -> str:
    """The name of a role's pod: it stays the same when the pod is replaced."""
    return f"{role.name}-{index}"


def is_enough(workload: Workload, pods: Container[str]) -> bool:
    """With these pods up the workload has all that it needs."""
    return is_whole(workload.groups, workload.roles, pods_up(workload, pods))


def pods_up(workload: Workload, pods: Container[str]) -> list[int]:
    """How many of these pods each role has."""
    return [sum(pod_name(role, index) in pods for index in range(role.count)) for role in workload.roles]


def leaders_of(workload: Workload) -> frozenset[str]:
    """The names of the roles that lead; most workloads have none."""
    return frozenset(role.name for role in workload.roles if role.leads)


def role_of(workload: Workload, pod: str) -> Role:
    """The role to which a pod of this name belongs."""
    name, _, _ = pod.rpartition("-")
    return next(role for role in workload.roles if role.name == name)


def breaks_gang(workload: Workload, remaining: Iterable[str]) -> bool:
    """With only these pods left, it has less than it needs."""
    count: dict[str, int] = {}
    for pod in remaining:
        role = pod.rpartition("-")[0]
        count[role] = count.get(role, 0) + 1
    return not is_whole(workload.groups, workload.roles, [count.get(role.name, 0) for role in workload.roles])
