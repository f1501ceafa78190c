"""A workload: roles of equal pods, perhaps in sub-groups, the pods that exist, and what stopping them would lose.

A workload is one decision: the minimums of its roles start together or not at all. With sub-groups the roles form a
tree, of which only some branches must run.
"""

import enum
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from kaiwo.model.affinity import PodAffinity
from kaiwo.model.gpus.gpu import WHOLE_MILLI, Share, ShareRule
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.request import Request

ROOT = ""
MAX_DEPTH = 8
NO_RANK = -1


class SubGroup(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Roles and other sub-groups, of which at least `minimum` must be complete."""

    name: str = ROOT
    parent: str = ROOT
    minimum: int = -1  # -1: all of them
    levels: TopologyConstraint | None = None  # how near to each other its pods run; None: as around it


class SubGroupTree(NamedTuple):
    path: str  # `left/workers`; empty: the workload itself
    minimum: int
    children: tuple["SubGroupTree | int", ...]  # an int is the number of a role
    extras: tuple[int, ...] = ()  # roles of which no pod is needed: they do not count as parts


class Leaf(Protocol):
    """What the tree needs to know about a role."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def needed(self) -> int: ...


def subgroup_tree(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> SubGroupTree:
    """The whole tree, which must be valid: see `subgroup_problem`. A branch with too few parts is never complete."""
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
    """Whether these numbers of pods per role are enough for the workload to run."""
    if not groups:
        return all(count >= role.needed for count, role in zip(up, roles, strict=True))
    return branch_has_minimum(subgroup_tree(groups, roles), roles, up)


def branch_has_minimum(branch: SubGroupTree | int, roles: Sequence[Leaf], up: Sequence[int]) -> bool:
    if isinstance(branch, int):
        return up[branch] >= roles[branch].needed
    return sum(branch_has_minimum(child, roles, up) for child in branch.children) >= branch.minimum


def subgroup_problem(groups: tuple[SubGroup, ...], roles: Sequence[Leaf]) -> str:
    """What is wrong with a tree, as the end of a sentence; empty when it is valid."""
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
        if len(way) > MAX_DEPTH:
            return f"is {len(way)} sub-groups deep at {name!r}; the maximum is {MAX_DEPTH}"
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
    group: str = ""  # its sub-group; empty: the workload itself
    leads: bool = False  # the others need it: it starts first, and is given up last
    levels: TopologyConstraint | None = None  # how near to each other its pods run; None: as around it

    @property
    def needed(self) -> int:
        """The pods without which the workload does not start."""
        return self.count if self.minimum < 0 else min(self.minimum, self.count)


class Workload(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """What the scheduler must know about a workload. How it runs is up to the cluster."""

    name: str  # `namespace/name`, unique among workloads that have not ended
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
    not_before_s: int = 0  # a back-off, or a start time that was requested
    not_before_why: str = ""
    time_limit_s: int = 0  # 0: none
    estimate_s: int = 0  # the owner's estimate; 0: none
    preemption_delay_s: int = 0  # it waits this long before others are evicted for it
    checkpoint_s: int = 0  # when it last saved its work; 0: never
    restart_s: int = 0  # how long it takes after a restart to get back to its checkpoint, as its owner says
    stale_grace_s: int | None = None  # how long it may run below its minimum; None: by policy; -1: forever
    broken_since_s: int = 0  # since when it runs below its minimum; 0: it does not
    labels: dict[str, str] = {}
    stops_others: bool = True  # others may be evicted for it
    may_go: int = -1  # how many of its running pods disruption budgets let evict at once; -1: no budget applies
    stays_why: str = ""  # why none of them may be evicted, where that is more than a budget's count
    reservation: str = ""  # it runs only on the GPUs of this pool or reservation; empty: anywhere
    expires_s: int = 0  # its allocation is released then, running or not; 0: never
    learned_s: int = 0  # how long similar runs took; 0: unknown
    groups: tuple[SubGroup, ...] = ()  # sub-groups, of which only some must run; empty: every role must
    class_priority: int = 0  # the value of its PriorityClass, if that lifts it above the default cap: see `PriorityCap`
    topology: str = ""  # whose levels the next settings name: see `TopologyConstraint`
    required_level: str = ""
    preferred_level: str = ""
    placement_strategy: str = ""
    segment_size: int = 0
    segment_level: str = ""
    array_slots: int = 0  # its array runs at most this many tasks at once, and so many run; 0: it may start
    bandwidth_mb_s: int = 0  # what each pod must be able to send to the others; 0: whatever there is
    rank_order: bool = False  # its pods get ranks by their places, as the pods of work with levels always do
    is_replaced: bool = True  # a pod of it that is evicted is made anew, by its controller or by Kaiwo
    made_by: str = ""  # the UID of the controller that makes its only pod, where the next pod is another workload
    roles_level: str = ""  # how far its roles may be apart: then the levels above hold for each role by itself
    strategy: str = (
        ""  # how nodes and devices are chosen: see STRATEGY_PLACEMENTS; empty: as its queue or the policy says
    )
    image: str = ""  # of its first container; runs of one image take similar times

    @property
    def pods(self) -> int:
        return sum(role.count for role in self.roles)

    @property
    def levels(self) -> TopologyConstraint | None:
        """How near to each other all its pods run; None: it does not say."""
        if self.roles_level:
            strategy, bandwidth_mb_s = self.placement_strategy, self.bandwidth_mb_s
            return TopologyConstraint(self.topology, self.roles_level, "", strategy, bandwidth_mb_s=bandwidth_mb_s)
        asked = self.required_level or self.preferred_level or self.placement_strategy or self.segment_level
        if not asked and not self.bandwidth_mb_s:
            return None
        levels = (self.required_level, self.preferred_level, self.placement_strategy)
        return TopologyConstraint(self.topology, *levels, self.segment_size, self.segment_level, self.bandwidth_mb_s)

    @property
    def levels_of_roles(self) -> TopologyConstraint | None:
        """How near to each other the pods of one role run, where it says how far roles may be apart."""
        if not self.roles_level or not (self.required_level or self.preferred_level or self.segment_level):
            return None
        levels = (self.required_level, self.preferred_level, self.placement_strategy)
        return TopologyConstraint(self.topology, *levels, self.segment_size, self.segment_level)


class Phase(enum.StrEnum):
    """Where a pod is between the decision and its end."""

    ASSUMED = "assumed"  # decided, but not confirmed by the cluster
    RUNNING = "running"
    RELEASING = "releasing"  # evicted, but still holds its devices
    STUCK = "stuck"  # evicted long ago: it still holds its devices, and nothing is planned on them
    DONE = "done"  # succeeded; holds nothing and is not started again


ACTIVE_PHASES = (Phase.ASSUMED, Phase.RUNNING)
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
    until_s: int = 0  # it is backfilled before a planned start: see `Start`
    beside: str = ""  # what it means to other tenants: see `Request.beside`
    share_with: ShareRule = ()  # with whom it shares a GPU, by its own rule: see `Request`
    annotations: tuple[tuple[str, str], ...] = ()  # see `Start`
    charged_to: str = ""  # the queue that pays for a foreign pod, or for one that takes long to go; else its workload's
    rank: int = NO_RANK  # see `Start`


def pod_name(role: Role, index: int) -> str:
    """The name stays the same when the pod is replaced."""
    return f"{role.name}-{index}"


def role_name(pod: str) -> str:
    """The name of a pod's role, from the name that `pod_name` made."""
    return pod.rpartition("-")[0]


def pod_index(pod: str) -> int:
    """A pod's index within its role, from the name that `pod_name` made; -1 if it is no such name."""
    index = pod.rpartition("-")[2]
    return int(index) if index.isdecimal() else -1


def ordered_pods(workload: Workload) -> list[tuple[str, Role]]:
    """Its pods' names in order, each with its role."""
    return [(pod_name(role, index), role) for role in workload.roles for index in range(role.count)]


def request_of(workload: Workload, pod: str) -> Request:
    """The request of one of its pods; an empty one where it has no such pod."""
    return next((role.request for name, role in ordered_pods(workload) if name == pod), Request())


def has_required_pods(workload: Workload, pods: Container[str]) -> bool:
    return has_minimum(workload.groups, workload.roles, pods_per_role(workload, pods))


def pods_per_role(workload: Workload, pods: Container[str]) -> list[int]:
    return [sum(pod_name(role, index) in pods for index in range(role.count)) for role in workload.roles]


def leading_roles(workload: Workload) -> frozenset[str]:
    return frozenset(role.name for role in workload.roles if role.leads)


def role_of(workload: Workload, pod: str) -> Role:
    name = role_name(pod)
    return next(role for role in workload.roles if role.name == name)


def find_role(workload: Workload, pod: str) -> Role | None:
    """The role of a pod; None: the workload has no such role now."""
    name = role_name(pod)
    return next((role for role in workload.roles if role.name == name), None)


def is_pod_of(workload: Workload, pod: str) -> bool:
    """It has such a pod, or waits for it: its role has as many."""
    role = find_role(workload, pod)
    return role is not None and pod_index(pod) < role.count


def breaks_gang(workload: Workload, remaining: Iterable[str]) -> bool:
    """Whether it has less than it needs when only these pods remain."""
    count: dict[str, int] = {}
    for pod in remaining:
        role = pod.rpartition("-")[0]  # as `role_name`, without a call for every pod of every possible victim
        count[role] = count.get(role, 0) + 1
    return not has_minimum(workload.groups, workload.roles, [count.get(role.name, 0) for role in workload.roles])


def lost_s(workload: Workload, since_s: int, now_s: int, max_restart_s: int) -> int:
    """The work that stopping a pod would lose: since its start or the last checkpoint, plus the restart cost.

    The restart cost is what its owner says. So it counts for at most the time since then, which was observed, and for
    at most `max_restart_s`: otherwise whoever claims years would never be stopped.
    """
    ran_s = max(0, now_s - max(since_s, workload.checkpoint_s))
    return ran_s + min(workload.restart_s, ran_s, max_restart_s)


def lost_gpu_s(workload: Workload, pods: Iterable[Pod], now_s: int, max_restart_s: int) -> int:
    lost_milli_s = 0
    for pod in pods:
        milli = sum([share.milli for share in pod.devices])
        lost_milli_s += lost_s(workload, pod.since_s, now_s, max_restart_s) * milli
    return lost_milli_s // WHOLE_MILLI


def differs_only_in_checkpoint(before: Workload, after: Workload) -> bool:
    saved_s = after.checkpoint_s
    return before.checkpoint_s != saved_s and replace(before, checkpoint_s=saved_s) == after
