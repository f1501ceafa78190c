"""PodGroups of other schedulers: scheduler-plugins, Volcano, KAI-Scheduler.

They are asked after the kinds that know their roles, whose controllers write the same number into such a PodGroup.
The object must exist: a label that an earlier scheduler left behind binds nobody.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.declared import build_least_group
from kaiwo.clusters.kubernetes.gangs.groups import Group, Key, alive, build_flat_group
from kaiwo.clusters.kubernetes.gangs.labels import OTHER_ANNOTATIONS, OTHER_LABELS
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.owners import Link, Owners, explain_unknown
from kaiwo.clusters.kubernetes.gangs.sub_groups import SubGroupSpec, build_tree_group

GROUPS = tuple(dict.fromkeys((*OTHER_LABELS.values(), *OTHER_ANNOTATIONS.values())))


class OtherSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_member: int | None = 1
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroupSpec, ...] | None = None


class OtherPodGroup(Owner, frozen=True, gc=False):
    spec: OtherSpec | None = None


def claim(member: Member, line: Sequence[Link], owners: Owners) -> Key | None:
    for group, name in named_groups(member):
        if owners.named(group, "PodGroup", member.namespace, name):
            return Key("PodGroup", member.namespace, name, part=group)
    return None


def named_groups(member: Member) -> list[tuple[str, str]]:
    """The API groups and names of the PodGroups that a pod names."""
    found = [(group, member.labels.get(label)) for label, group in OTHER_LABELS.items()]
    found += [(group, member.annotations.get(note)) for note, group in OTHER_ANNOTATIONS.items()]
    return [(group, name) for group, name in found if name]


def assemble(key: Key, members: Sequence[Member], owners: Owners) -> Group:
    owner = owners.named(key.part, "PodGroup", key.namespace, key.name)
    if not isinstance(owner, OtherPodGroup):
        return build_flat_group(key, members, len(alive(members)), "size unknown", explain_unknown(owner, str(key)))
    if owner.spec and owner.spec.sub_groups:
        return build_tree_group(key, members, owner.spec.sub_groups, owner.spec.min_sub_group)
    minimum = (owner.spec and owner.spec.min_member) or 1
    return build_least_group(key, members, minimum, "the pod group's minimum", owners)
