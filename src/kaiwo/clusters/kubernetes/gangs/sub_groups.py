"""A PodGroup with sub-groups, as KAI-Scheduler writes it: a tree whose leaves have pods.

In:    the entries of `subGroups`, and the pods that name a leaf by their label.   Out: one gang with a role a leaf.
A leaf needs its `minMember` pods; what is above it needs `minSubGroup` of its children, or all of them.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.groups import Group, GroupRole, Key, hold
from kaiwo.clusters.kubernetes.gangs.labels import KAI_SUB_GROUP
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.model.request import Request
from kaiwo.model.subgroup import ROOT, SubGroup, fault_in, is_whole
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.ways import ways_of

RULE = "the sub-groups of the pod group"


class SubGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    min_member: int | None = None
    min_sub_group: int | None = None
    parent: str | None = None


def build_tree_group(
    key: Key, members: Sequence[Member], entries: Sequence[SubGroupSpec], min_sub_group: int | None
) -> Group:
    """The gang as it is now; while too few pods exist for its tree, it waits."""
    above = {entry.parent or ROOT for entry in entries}
    held = hold(members, lambda member: member.labels.get(KAI_SUB_GROUP, ""))
    roles = [_leaf(entry, held.pop(entry.name, [])) for entry in entries if entry.name not in above]
    groups = (SubGroup(ROOT, ROOT, _count(min_sub_group)), *(_group(each) for each in entries if each.name in above))
    strays = [GroupRole(name or "main", len(names), 0, tuple(sorted(names))) for name, names in sorted(held.items())]
    fault = fault_in(groups, roles)
    waits = f"{key} {fault}" if fault else _explain_missing(key, groups, roles)
    minimum = 0 if fault else _least_pods(groups, roles)
    return Group(key, tuple(roles + strays), max(1, minimum), RULE, waits=waits, groups=() if fault else groups)


def _leaf(entry: SubGroupSpec, names: list[str]) -> GroupRole:
    minimum = max(1, entry.min_member or 1)
    return GroupRole(entry.name, max(len(names), minimum), minimum, tuple(sorted(names)), entry.parent or ROOT)


def _group(entry: SubGroupSpec) -> SubGroup:
    return SubGroup(entry.name, entry.parent or ROOT, _count(entry.min_sub_group))


def _count(written: int | None) -> int:
    return -1 if written is None else written


def _explain_missing(key: Key, groups: tuple[SubGroup, ...], roles: Sequence[GroupRole]) -> str:
    """Empty when enough pods exist."""
    if is_whole(groups, roles, [len(role.members) for role in roles]):
        return ""
    short = [f"{role.name} {len(role.members)} of {role.minimum}" for role in roles if len(role.members) < role.minimum]
    return f"{key} waits until enough pods of its sub-groups exist ({', '.join(short)})"


def _least_pods(groups: tuple[SubGroup, ...], roles: Sequence[GroupRole]) -> int:
    """How many pods start together at least."""
    as_roles = tuple(Role(Request(cpu_milli=1), role.name, role.count, role.minimum, role.group) for role in roles)
    ways = ways_of(Workload("", as_roles, groups=groups), [0] * len(roles))
    return min((sum(pods for _, pods in way) for way in ways), default=0)
