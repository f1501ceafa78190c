"""PodGroups of other schedulers: scheduler-plugins, Volcano, and KAI-Scheduler with its tree of sub-groups.

A leaf of the tree has pods and needs `minMember` of them; a branch needs `minSubGroup` of its children, or all of them.
Nothing waits for finished pods, or for leaves whose pods have all finished.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, GangRole, build_ownerless_gang, names_by_role
from kaiwo.clusters.kubernetes.gangs.kinds.declared_sizes import build_minimum_gang
from kaiwo.clusters.kubernetes.gangs.labels import KAI_SUB_GROUP, OTHER_ANNOTATIONS, OTHER_LABELS
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink
from kaiwo.model.network.constraint import STATED, TopologyConstraint
from kaiwo.model.request import Request
from kaiwo.model.workload import ROOT, Role, SubGroup, Workload, has_minimum, subgroup_problem
from kaiwo.snapshot.subgroup_choices import ways_to_start

GROUPS = tuple(dict.fromkeys((*OTHER_LABELS.values(), *OTHER_ANNOTATIONS.values())))
RULE = "the sub-groups of the pod group"


class LevelSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """KAI-Scheduler's topologyConstraint. Its levels are node labels."""

    topology: str | None = None
    required_topology_level: str | None = None
    preferred_topology_level: str | None = None

    @property
    def constraint(self) -> TopologyConstraint | None:
        """Only what it states counts: no tighter level is looked for, as in KAI-Scheduler."""
        required, preferred = self.required_topology_level or "", self.preferred_topology_level or ""
        if not (required or preferred):
            return None
        return TopologyConstraint(self.topology or "", required, preferred, STATED)


class SubGroupSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    min_member: int | None = None
    min_sub_group: int | None = None
    parent: str | None = None
    topology_constraint: LevelSpec | None = None

    @property
    def levels(self) -> TopologyConstraint | None:
        return self.topology_constraint.constraint if self.topology_constraint else None

    @property
    def above(self) -> str:
        return self.parent or ROOT

    @property
    def least_pods(self) -> int:
        return max(1, self.min_member or 1)


class OtherSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_member: int | None = 1
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroupSpec, ...] | None = None
    topology_constraint: LevelSpec | None = None


class OtherPodGroup(Owner, frozen=True, gc=False):
    spec: OtherSpec | None = None


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    for group, name in named_groups(member):
        if owners.find_by_name(group, "PodGroup", member.namespace, name):
            return GangKey("PodGroup", member.namespace, name, part=group)
    return None


def named_groups(member: Member) -> list[tuple[str, str]]:
    found = [(group, member.labels.get(label)) for label, group in OTHER_LABELS.items()]
    found += [(group, member.annotations.get(note)) for note, group in OTHER_ANNOTATIONS.items()]
    return [(group, name) for group, name in found if name]


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    owner = owners.find_by_name(key.part, "PodGroup", key.namespace, key.name)
    if not isinstance(owner, OtherPodGroup):
        return build_ownerless_gang(key, members, owner)
    if owner.spec and owner.spec.sub_groups:
        whole = SubGroupSpec(
            ROOT, min_sub_group=owner.spec.min_sub_group, topology_constraint=owner.spec.topology_constraint
        )
        return _build_tree_gang(key, members, owner.spec.sub_groups, whole)
    minimum = (owner.spec and owner.spec.min_member) or 1
    gang = build_minimum_gang(key, members, minimum, "the pod group's minimum", owners)
    levels = owner.spec.topology_constraint if owner.spec else None
    return gang if levels is None else msgspec.structs.replace(gang, levels=levels.constraint)


def _build_tree_gang(
    key: GangKey, members: Sequence[Member], entries: Sequence[SubGroupSpec], whole: SubGroupSpec
) -> Gang:
    above = {entry.above for entry in entries}
    pods = names_by_role(members, _leaf_of)
    ended = Counter(_leaf_of(member) for member in members if member.has_succeeded)
    leaves = [entry for entry in entries if entry.name not in above]
    done = {entry.name for entry in leaves if entry.name not in pods and ended[entry.name] >= entry.least_pods}
    done = _with_branches(done, entries, above)
    roles = [_leaf(each, pods.pop(each.name, []), ended[each.name]) for each in leaves if each.name not in done]
    branches = [each for each in entries if each.name in above and each.name not in done]
    finished = Counter(entry.above for entry in entries if entry.name in done)
    groups = tuple(_group(each, finished[each.name]) for each in (whole, *branches))
    extras = [GangRole(name or "main", len(names), 0, tuple(sorted(names))) for name, names in sorted(pods.items())]
    fault = subgroup_problem(groups, roles)
    why = f"{key} {fault}" if fault else _explain_missing(key, groups, roles)
    minimum = 0 if fault else _least_pods(groups, roles)
    return Gang(key, tuple(roles + extras), max(1, minimum), RULE, blocked_by=why, subgroups=() if fault else groups)


def _leaf_of(member: Member) -> str:
    return member.labels.get(KAI_SUB_GROUP, "")


def _with_branches(done: set[str], entries: Sequence[SubGroupSpec], above: set[str]) -> set[str]:
    """These leaves, and every branch of which all parts are done."""
    while True:
        open_in = {entry.above for entry in entries if entry.name not in done}
        more = {entry.name for entry in entries if entry.name in above - open_in} - done
        if not more:
            return done
        done = done | more


def _leaf(entry: SubGroupSpec, names: list[str], done: int) -> GangRole:
    minimum = entry.least_pods
    if len(names) < minimum:
        minimum = max(1, minimum - done)
    return GangRole(entry.name, max(len(names), minimum), minimum, tuple(sorted(names)), entry.above, entry.levels)


def _group(entry: SubGroupSpec, done: int) -> SubGroup:
    written = entry.min_sub_group
    minimum = -1 if written is None else max(1, written - done) if written > 0 else written
    return SubGroup(entry.name, entry.above, minimum, entry.levels)


def _explain_missing(key: GangKey, groups: tuple[SubGroup, ...], roles: Sequence[GangRole]) -> str:
    if has_minimum(groups, roles, [len(role.members) for role in roles]):
        return ""
    short = [f"{role.name} {len(role.members)} of {role.minimum}" for role in roles if len(role.members) < role.minimum]
    return f"{key} waits until enough pods of its sub-groups exist ({', '.join(short)})"


def _least_pods(groups: tuple[SubGroup, ...], roles: Sequence[GangRole]) -> int:
    as_roles = tuple(Role(Request(cpu_milli=1), role.name, role.count, role.minimum, role.group) for role in roles)
    ways = ways_to_start(Workload("", as_roles, groups=groups), [0] * len(roles))
    return min((sum(pods for _, pods in way) for way in ways), default=0)
