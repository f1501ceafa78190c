"""A gang: the pods that start together, how many of them must, and what it still waits for.

A Gang becomes a Workload of the model: its roles are the model's roles with their count and minimum. The pods of one
role may still have different requests; the code that makes the Workload splits such a role by request.
GangKind is what each kind of gang must provide; every kind has a file of its own, and `registry` defines their order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from kaiwo.clusters.kubernetes.gangs.labels import JOBSET_ROLE, RAY_GROUP, TRAINING_ROLES
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Reference, read_annotation
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink, explain_unknown
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.workload import SubGroup

# Roles whose pods the others connect to, in LeaderWorkerSets, MPIJobs, Ray, PyTorchJobs and TFJobs, or by annotation.
LEADERS = ("leader", "launcher", "head", "master", "chief")
SIZE_UNKNOWN = "size unknown"  # the rule of a gang whose number of pods is not known yet
ROLE_LABELS = (JOBSET_ROLE, *TRAINING_ROLES, RAY_GROUP)


class GangKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """Identifies a gang for as long as it exists."""

    kind: str
    namespace: str
    name: str
    uid: str = ""  # two objects that had the same name one after the other are two gangs
    part: str = ""  # set where one replica of the object is the gang

    def __str__(self) -> str:
        word = "of" if self.kind == "PodGroup" else "replica"  # the part of a PodGroup is its API group
        part = f" {word} {self.part}" if self.part else ""
        return f"{self.kind} {self.namespace}/{self.name}{part}"


class GangRole(msgspec.Struct, frozen=True, gc=False):
    """Pods of one gang with the same task: `count` are wanted now, `minimum` must start with the others."""

    name: str
    count: int
    minimum: int
    members: tuple[str, ...] = ()  # names of pods that exist and have not finished
    group: str = ""  # the sub-group that it is a part of
    levels: TopologyConstraint | None = None  # how near to each other its pods run, as its object says

    @property
    def needed(self) -> int:
        return self.minimum

    @property
    def leads(self) -> bool:
        return self.name in LEADERS


class ExclusiveDomain(msgspec.Struct, frozen=True, gc=False):
    """Pods of a gang that have a domain of the network to themselves, and all run in it."""

    name: str
    level: str  # a node label
    members: tuple[str, ...]  # names of pods that exist and have not finished
    parent: str = ""  # the exclusive domain around it
    leader: str = ""  # the pod after which others are made
    later: int = 0  # how many are made once the leader has a node
    template: Mapping[str, object] | None = None  # the specification of these; None: that of the leader


class Gang(msgspec.Struct, frozen=True, gc=False):
    key: GangKey
    roles: tuple[GangRole, ...]
    minimum: int  # pods without which it does not start
    rule: str  # how the minimum was found
    later: int = 0  # pods that are created only after these are bound or finished
    done: int = 0  # pods that have done their work and are not made again
    blocked_by: str = ""  # why it cannot be tried yet; empty when it can
    subgroups: tuple[SubGroup, ...] = ()  # of which only some must start; empty: every role must
    is_suspended: bool = False
    previous_run: tuple[str, ...] = ()  # pods of an earlier run that still hold a node; nothing waits for them
    levels: TopologyConstraint | None = None  # how near to each other all its pods run, as its object says
    domains: tuple[ExclusiveDomain, ...] = ()  # the wider before the narrower

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(name for role in self.roles for name in role.members))


class WantedPods(msgspec.Struct, frozen=True, gc=False):
    role: str
    count: int
    minimum: int
    later: int = 0
    done: int = 0


Part = TypeVar("Part", GangRole, WantedPods)
RoleOf = Callable[[Member], str]


class GangKind(Protocol):
    """What each module of `kinds` provides."""

    def find_key(self, member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
        """The gang that a pod belongs to, if any."""

    def assemble(self, key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang | None:
        """One gang from its own pods."""


def owner_key(member: Member, owner: Reference | None, group: str, *kinds: str) -> GangKey | None:
    """The key of the gang that the owner's pods form, if the owner is of one of these kinds."""
    return GangKey(owner.kind, member.namespace, owner.name, owner.uid) if owner and owner.is_a(group, *kinds) else None


def alive(members: Iterable[Member]) -> list[Member]:
    return [each for each in members if each.is_alive]


def role_hint(member: Member) -> str:
    """The role that the pod's own labels name, or `leader` if its annotation says so."""
    if read_annotation("leader", (member.annotations,)) == "true":
        return "leader"
    return next((member.labels[label] for label in ROLE_LABELS if member.labels.get(label)), "main").lower()


def build_gang(
    key: GangKey,
    wants: Sequence[WantedPods],
    members: Sequence[Member],
    role_of: RoleOf,
    rule: str,
    is_suspended: bool | None = False,
) -> Gang:
    """Join what is wanted with the pods that exist, by role. Pods of a role that is not wanted are surplus."""
    left = names_by_role(members, role_of)
    roles = [_build_role(want, left.pop(want.role, [])) for want in wants]
    roles += [_build_role(WantedPods(role, 0, 0), names) for role, names in sorted(left.items())]
    if not any(role.minimum for role in roles):
        roles = spread_minimum(roles, 1)  # more pods exist than are wanted: each is useful alone
    minimum = sum(role.minimum for role in roles)
    return Gang(
        key=key,
        roles=tuple(role for role in roles if role.count),
        minimum=minimum,
        rule=rule,
        later=sum(want.later for want in wants),
        done=sum(want.done for want in wants),
        blocked_by=f"{key} is suspended; resume it" if is_suspended else _explain_missing(key, roles, minimum),
        is_suspended=bool(is_suspended),
    )


def build_flat_gang(key: GangKey, members: Sequence[Member], minimum: int, rule: str, blocked_by: str = "") -> Gang:
    """A gang that needs any `minimum` of its pods; its roles come from the pods' own labels."""
    held = names_by_role(members, role_hint)
    minimum = max(1, minimum)
    found = [_build_role(WantedPods(role, 0, 0), names) for role, names in sorted(held.items())]
    roles = spread_minimum(sorted(found, key=lambda role: not role.leads), minimum)
    return Gang(key, tuple(roles), minimum, rule, blocked_by=blocked_by or _explain_missing(key, roles, minimum))


def build_unsized_gang(key: GangKey, members: Sequence[Member], blocked_by: str) -> Gang:
    """A gang that cannot start before it is known how many pods it has."""
    return build_flat_gang(key, members, len(alive(members)), SIZE_UNKNOWN, blocked_by)


def build_ownerless_gang(key: GangKey, members: Sequence[Member], owner: Owner | None) -> Gang:
    return build_unsized_gang(key, members, explain_unknown(owner, str(key)))


def wanted_together(
    wants: Sequence[WantedPods], gang_names: Mapping[str, tuple[str, ...]], members: Sequence[Member], role_of: RoleOf
) -> list[WantedPods]:
    """Those of an owner's roles that are in one gang with these pods: they name the same gangs, or none.

    Otherwise two gangs of one owner would wait for each other forever, each counting the other's pods as its own.
    """
    ours = {gang_names[role] for each in members if (role := role_of(each)) in gang_names}
    return [want for want in wants if not ours or gang_names[want.role] in ours]


def with_previous_run(group: Gang, members: Iterable[Member]) -> Gang:
    """The gang with those pods of an earlier run that are on a node. A pod that never got there is ignored."""
    return msgspec.structs.replace(group, previous_run=tuple(sorted(each.name for each in members if each.is_bound)))


def names_by_role(members: Iterable[Member], role_of: RoleOf) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for member in alive(members):
        held.setdefault(role_of(member), []).append(member.name)
    return held


def spread_minimum(roles: Iterable[Part], minimum: int) -> list[Part]:
    """Any `minimum` pods will do, so the first roles take as many as they have."""
    spread = []
    for role in roles:
        share = min(role.count, minimum)
        minimum -= share
        spread.append(msgspec.structs.replace(role, minimum=share))
    return spread


def _explain_missing(key: GangKey, roles: Sequence[GangRole], minimum: int) -> str:
    """Empty when the pods that must start together all exist."""
    have = sum(min(len(role.members), role.minimum) for role in roles)
    if have >= minimum:
        return ""
    parts = [f"{role.name} {len(role.members)} of {role.minimum}" for role in roles if role.minimum]
    is_known = any(len(role.members) < role.minimum for role in roles)  # which role the missing pods would have
    listed = f" ({', '.join(parts)})" if is_known and len(parts) > 1 else ""
    return f"{key} waits until its pods exist: {have} of the {minimum} that start together do{listed}"


def _build_role(want: WantedPods, names: list[str]) -> GangRole:
    return GangRole(want.role, max(want.count, len(names)), want.minimum, tuple(sorted(names)))
