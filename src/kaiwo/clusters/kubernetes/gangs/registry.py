"""Find the gang of a pod: the kinds are tried in order, and the first that matches has it.

In:    pods and their owners.   Out: gangs, and the pods on their own.
Never: reads a clock, asks the API server, or looks at pods of another key.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kaiwo.clusters.kubernetes.gangs import owners as owners_module
from kaiwo.clusters.kubernetes.gangs.gang import Gang, GangKey, GangKind
from kaiwo.clusters.kubernetes.gangs.kinds import (
    annotated_pods,
    job,
    jobset,
    kubernetes_podgroup,
    kueue_pod_group,
    leaderworkerset,
    other_podgroups,
    ray_cluster,
    replicaset_statefulset,
    training_jobs,
)
from kaiwo.clusters.kubernetes.gangs.kinds.jobset import JobSet
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.owners import OwnerIndex

# What people wrote on the pods themselves comes before what follows from their owners, and an owner of several roles
# before the Job inside it. A LeaderWorkerSet knows more about its waves than the pod group that Kueue makes of it.
KINDS = {
    "gang": GangKind(annotated_pods.find_key, annotated_pods.assemble),
    "PodGroup": GangKind(kubernetes_podgroup.find_key, kubernetes_podgroup.assemble),
    "LeaderWorkerSet": GangKind(leaderworkerset.find_key, leaderworkerset.assemble),
    "Kueue pod group": GangKind(kueue_pod_group.find_key, kueue_pod_group.assemble),
    "JobSet": GangKind(jobset.find_key, jobset.assemble),
    "training job": GangKind(training_jobs.find_key, training_jobs.assemble),
    "RayCluster": GangKind(ray_cluster.find_key, ray_cluster.assemble),
    "PodGroup of others": GangKind(other_podgroups.find_key, other_podgroups.assemble),
    "Job": GangKind(job.find_key, job.assemble),
}

# The objects that are read further than their metadata, by API group and kind; every version of a group reads alike.
OWNER_TYPES: dict[tuple[str, str], type[Owner]] = {
    (job.GROUP, "Job"): job.Job,
    (jobset.GROUP, "JobSet"): JobSet,
    (leaderworkerset.GROUP, "LeaderWorkerSet"): leaderworkerset.LeaderWorkerSet,
    (ray_cluster.GROUP, "RayCluster"): ray_cluster.RayCluster,
    (kubernetes_podgroup.GROUP, "PodGroup"): kubernetes_podgroup.PodGroup,
    (kubernetes_podgroup.GROUP, "Workload"): kubernetes_podgroup.Workload,
    **{
        (replicaset_statefulset.GROUP, kind): replicaset_statefulset.Replicated for kind in replicaset_statefulset.KINDS
    },
    **{(training_jobs.GROUP, kind): training_jobs.TrainingJob for kind in training_jobs.KINDS},
    **{(group, "PodGroup"): other_podgroups.OtherPodGroup for group in other_podgroups.GROUPS},
}


class GangId(NamedTuple):
    """Which gang: the kind that matched, and its key."""

    kind: str
    key: GangKey


def read_owner(raw: object) -> Owner | str:
    """An owner of pods, decoded from JSON; a sentence where it cannot be."""
    return owners_module.read_owner(raw, OWNER_TYPES)


def find_gang(member: Member, owners: OwnerIndex) -> GangId | None:
    """The gang of one pod; None for a pod on its own."""
    line = owners.chain(member)
    for name, kind in KINDS.items():
        if key := kind.find_key(member, line, owners):
            return GangId(name, key)
    return None


def build_gang_of(gang_id: GangId, members: Sequence[Member], owners: OwnerIndex) -> Gang | None:
    """One gang, from its own pods alone; None when no pod is left or its pods may start one by one."""
    if not any(member.is_alive for member in members):
        return None
    return KINDS[gang_id.kind].assemble(gang_id.key, members, owners)


def build_gangs(members: Iterable[Member], owners: OwnerIndex) -> tuple[list[Gang], list[Member]]:
    """Everything at once: the gangs by key, and the pods on their own by name."""
    together: dict[GangId, list[Member]] = {}
    alone: list[Member] = []
    for member in members:
        gang_id = find_gang(member, owners)
        if gang_id is None:
            alone.append(member)
        else:
            together.setdefault(gang_id, []).append(member)
    groups: list[Gang] = []
    for gang_id, own in sorted(together.items()):
        group = build_gang_of(gang_id, own, owners)
        if group is None:
            alone += [each for each in own if each.is_alive]
        else:
            groups.append(group)
    return groups, sorted(alone, key=lambda each: (each.namespace, each.name))
