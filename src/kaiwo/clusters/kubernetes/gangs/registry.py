"""Which kind of gang a pod belongs to: the kinds are asked in order, and the first that claims it has it.

In:    pods and the objects above them.   Out: groups, and the pods that stand alone.
Never: reads a clock, asks the API server, or looks at pods of another key.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.gangs import (
    annotated,
    jobs,
    jobsets,
    kueue,
    leaderworkersets,
    other_podgroups,
    podgroups,
    ray,
    replicas,
    training,
)
from kaiwo.clusters.kubernetes.gangs import owners as owners_module
from kaiwo.clusters.kubernetes.gangs.groups import Group, Key
from kaiwo.clusters.kubernetes.gangs.jobset_spec import JobSet
from kaiwo.clusters.kubernetes.gangs.kind import Kind
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.owners import Owners

# What people wrote on the pods themselves comes before what we conclude from their owners, and an owner of several
# roles before the Job inside it. A LeaderWorkerSet knows more of its waves than the pod group Kueue makes of it.
KINDS = {
    "gang": Kind(annotated.claim, annotated.assemble),
    "PodGroup": Kind(podgroups.claim, podgroups.assemble),
    "LeaderWorkerSet": Kind(leaderworkersets.claim, leaderworkersets.assemble),
    "Kueue pod group": Kind(kueue.claim, kueue.assemble),
    "JobSet": Kind(jobsets.claim, jobsets.assemble),
    "training job": Kind(training.claim, training.assemble),
    "RayCluster": Kind(ray.claim, ray.assemble),
    "PodGroup of others": Kind(other_podgroups.claim, other_podgroups.assemble),
    "Job": Kind(jobs.claim, jobs.assemble),
}

# The objects that are read further than their metadata, by API group and kind; every version of a group reads alike.
READ: dict[tuple[str, str], type[Owner]] = {
    (jobs.GROUP, "Job"): jobs.Job,
    (jobsets.GROUP, "JobSet"): JobSet,
    (leaderworkersets.GROUP, "LeaderWorkerSet"): leaderworkersets.LeaderWorkerSet,
    (ray.GROUP, "RayCluster"): ray.RayCluster,
    (podgroups.GROUP, "PodGroup"): podgroups.PodGroup,
    (podgroups.GROUP, "Workload"): podgroups.Workload,
    **{(replicas.GROUP, kind): replicas.Replicated for kind in replicas.KINDS},
    **{(training.GROUP, kind): training.TrainingJob for kind in training.KINDS},
    **{(group, "PodGroup"): other_podgroups.OtherPodGroup for group in other_podgroups.GROUPS},
}


class Place(NamedTuple):
    """Where a pod belongs: the kind that claimed it, and the gang."""

    kind: str
    key: Key


def read_owner(raw: object) -> Owner | str:
    """An object above pods, decoded from JSON; a sentence where it cannot be."""
    return owners_module.read_owner(raw, READ)


def place_of(member: Member, owners: Owners) -> Place | None:
    """The gang of one pod; None for a pod that stands alone."""
    line = owners.line(member)
    for name, kind in KINDS.items():
        if key := kind.claim(member, line, owners):
            return Place(name, key)
    return None


def group_of(place: Place, members: Sequence[Member], owners: Owners) -> Group | None:
    """One gang, from its own pods alone; None when nobody is left in it or its pods may start one by one."""
    if not any(member.is_alive for member in members):
        return None
    return KINDS[place.kind].assemble(place.key, members, owners)


def groups_of(members: Iterable[Member], owners: Owners) -> tuple[list[Group], list[Member]]:
    """Everything at once: the gangs by key, and the pods that stand alone by name."""
    together: dict[Place, list[Member]] = {}
    alone: list[Member] = []
    for member in members:
        place = place_of(member, owners)
        if place is None:
            alone.append(member)
        else:
            together.setdefault(place, []).append(member)
    groups: list[Group] = []
    for place, own in sorted(together.items()):
        group = group_of(place, own, owners)
        if group is None:
            alone += [each for each in own if each.is_alive]
        else:
            groups.append(group)
    return groups, sorted(alone, key=lambda each: (each.namespace, each.name))
