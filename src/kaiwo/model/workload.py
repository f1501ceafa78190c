"""Work that somebody submitted: one or more roles of equal pods, and the pods that exist.

A workload is one decision: its roles' minimums start together or not at all.

Also: Sub-groups: a workload whose roles form a tree, of which only some branches must run.
Also: What is thrown away when running work is stopped.
"""

import enum
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.model.affinity import PodAffinity
from kaiwo.model.gpu import WHOLE_MILLI, Share
from kaiwo.model.request import Request

ROOT = ""
MOST_DEPTH = 8


class SubGroup(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Roles and other sub-groups below it, of which at least `minimum` must be whole."""

    name: str = ROOT
    parent: str = ROOT
    minimum: int = -1  # -1: all of them


class SubGroupTree(NamedTuple):
    """A sub-group with what is below it, in the order in which the workload names it."""

    path: str  # `left/workers`; empty: the workload itself
    minimum: int
    children: tuple["SubGroupTree | int", ...]  # an int is the number of a role
    extras: tuple[int, ...] = ()  # roles of which no pod is needed: they are no part that counts


class Leaf(Protocol):
    """What the tree must know of a role."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def needed(self) -> int: ...


def subgroup_tree(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> SubGroupTree:
    """The whole tree. It must be sound: see `fault_in`. What needs more parts than it has is never whole."""
    return _tree(groups, tuple((role.group, role.needed > 0) for role in roles))


@lru_cache(maxsize=256)
def _tree(groups: tuple[SubGroup, ...], roles: tuple[tuple[str, bool], ...]) -> SubGroupTree:
    minimum = next((group.minimum for group in groups if group.name == ROOT), -1)
    return _branch(SubGroup(ROOT, ROOT, minimum), "", groups, roles)


def _branch(
    group: SubGroup, path: str, groups: tuple[SubGroup, ...], roles: tuple[tuple[str, bool], ...]
) -> SubGroupTree:
    below = [each for each in groups if each.parent == group.name and each.name != ROOT]
    children: list[SubGroupTree | int] = [
        _branch(each, f"{path}/{each.name}".strip("/"), groups, roles) for each in below
    ]
    children += [number for number, (parent, counts) in enumerate(roles) if parent == group.name and counts]
    extras = tuple(number for number, (parent, counts) in enumerate(roles) if parent == group.name and not counts)
    return SubGroupTree(path, len(children) if group.minimum < 0 else group.minimum, tuple(children), extras)


def has_minimum(groups: tuple[SubGroup, ...], roles: Sequence[Leaf], up: Sequence[int]) -> bool:
    """So many pods of each role are what the workload needs, or more."""
    if not groups:
        return all(count >= role.needed for count, role in zip(up, roles, strict=True))
    return branch_has_minimum(subgroup_tree(groups, roles), roles, up)


def branch_has_minimum(branch: SubGroupTree | int, roles: Sequence[Leaf], up: Sequence[int]) -> bool:
    """The same of one branch."""
    if isinstance(branch, int):
        return up[branch] >= roles[branch].needed
    return sum(branch_has_minimum(child, roles, up) for child in branch.children) >= branch.minimum


def subgroup_problem(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> str:
    """What is wrong with a tree, as the end of a sentence; empty: it is sound."""
    parents = {group.name: group.parent for group in groups if group.name != ROOT}
    names = [group.name for group in groups]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"names the sub-group {twice!r} twice; give each its own name"
    for name, parent in (*parents.items(), *((role.name, role.group) for role in roles)):
        if parent != ROOT and parent not in parents:
            return f"puts {name!r} into the sub-group {parent!r}, which it does not have; add it, or correct the name"
    for name in parents:
        way = [name]
        while (above := parents[way[-1]]) != ROOT:
            if above in way:
                return f"has {name!r} inside itself, by way of {way[-1]!r}; clear the parent of one of them"
            way.append(above)
        if len(way) > MOST_DEPTH:
            return f"is {len(way)} sub-groups deep at {name!r}; the most is {MOST_DEPTH}"
    for group in groups:
        leaves = [role.group for role in roles if role.needed]
        below = sum(parent == group.name for parent in (*parents.values(), *leaves))
        what = f"the sub-group {group.name!r}" if group.name else "the workload"
        if not below:
            return f"has nothing in {what}; put pods into it, or remove it"
        if group.minimum == 0 or group.minimum > below:
            return f"needs {group.minimum} of the {below} parts of {what}; ask for 1 to {below}"
    return ""


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


RELEASING_PHASES = (Phase.RELEASING, Phase.STUCK)


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
    neighbours: PodAffinity | None = None
    until_s: int = 0  # it fills a gap before a planned start: see `Start`
    beside: str = ""  # what it is to those with whom it shares devices: see `Request`


def pod_name(role: Role, index: int) -> str:
    """The name of a role's pod: it stays the same when the pod is replaced."""
    return f"{role.name}-{index}"


def has_required_pods(workload: Workload, pods: Container[str]) -> bool:
    """With these pods up the workload has all that it needs."""
    return has_minimum(workload.groups, workload.roles, pods_per_role(workload, pods))


def pods_per_role(workload: Workload, pods: Container[str]) -> list[int]:
    """How many of these pods each role has."""
    return [sum(pod_name(role, index) in pods for index in range(role.count)) for role in workload.roles]


def leading_roles(workload: Workload) -> frozenset[str]:
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
    return not has_minimum(workload.groups, workload.roles, [count.get(role.name, 0) for role in workload.roles])


def lost_s(workload: Workload, since_s: int, now_s: int) -> int:
    """Of a pod that runs since then: what it did after the last checkpoint, and what it takes to be there again."""
    return max(0, now_s - max(since_s, workload.checkpoint_s)) + workload.restart_s


def lost_gpu_s(workload: Workload, pods: Iterable[Pod], now_s: int) -> int:
    """The same of several, by the GPUs that they hold."""
    return (
        sum(lost_s(workload, pod.since_s, now_s) * share.milli for pod in pods for share in pod.devices) // WHOLE_MILLI
    )


def differs_only_in_checkpoint(before: Workload, after: Workload) -> bool:
    """Nothing about it is different but when it last saved its work."""
    saved_s = after.checkpoint_s
    return before.checkpoint_s != saved_s and replace(before, checkpoint_s=saved_s) == after
