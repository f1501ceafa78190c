"""The registry of gang kinds: they are tried in order, and the first that matches a pod decides its gang.

Never reads a clock, calls the API server, or looks at pods of another gang.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

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
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Unreadable
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex

# What people wrote on the pods themselves comes before what follows from their owners, and an owner of several roles
# before the Job inside it. A LeaderWorkerSet knows more about its waves than the pod group that Kueue makes of it.
KINDS: dict[str, GangKind] = {
    "gang": annotated_pods,
    "PodGroup": kubernetes_podgroup,
    "LeaderWorkerSet": leaderworkerset,
    "Kueue pod group": kueue_pod_group,
    "JobSet": jobset,
    "training job": training_jobs,
    "RayCluster": ray_cluster,
    "PodGroup of others": other_podgroups,
    "Job": job,
}

# The objects of which more than the metadata is read, by API group and kind; all versions of a group are read alike.
OWNER_TYPES: dict[tuple[str, str], type[Owner]] = {
    (job.GROUP, "Job"): job.Job,
    (jobset.GROUP, "JobSet"): jobset.JobSet,
    (leaderworkerset.GROUP, "LeaderWorkerSet"): leaderworkerset.LeaderWorkerSet,
    (ray_cluster.GROUP, "RayCluster"): ray_cluster.RayCluster,
    (kubernetes_podgroup.GROUP, "PodGroup"): kubernetes_podgroup.PodGroup,
    (kubernetes_podgroup.GROUP, "Workload"): kubernetes_podgroup.KubernetesWorkload,
    (replicaset_statefulset.GROUP, "ReplicaSet"): replicaset_statefulset.ReplicatedOwner,
    (replicaset_statefulset.GROUP, "StatefulSet"): replicaset_statefulset.ReplicatedOwner,
    **{(training_jobs.GROUP, kind): training_jobs.TrainingJob for kind in training_jobs.KINDS},
    **{(group, "PodGroup"): other_podgroups.OtherPodGroup for group in other_podgroups.GROUPS},
}


class GangId(NamedTuple):
    kind: str
    key: GangKey


def read_owner(raw: object) -> Owner | str:
    """An owner of pods (of an unknown kind only its metadata), or the reason why the object cannot be read."""
    try:
        plain = msgspec.convert(raw, Owner)
    except msgspec.ValidationError as fault:
        return f"an object above pods cannot be read ({fault})"
    if not plain.kind or not plain.name:
        return "an object above pods without kind and name cannot be read"
    try:
        return msgspec.convert(raw, OWNER_TYPES.get((plain.group, plain.kind), Owner))
    except msgspec.ValidationError as fault:
        return Unreadable(plain.kind, plain.api_version, plain.metadata, str(fault))


def find_gang(member: Member, owners: OwnerIndex) -> GangId | None:
    """The gang of one pod; None for a pod on its own."""
    chain = owners.chain(member)
    for name, kind in KINDS.items():
        if key := kind.find_key(member, chain, owners):
            return GangId(name, key)
    return None


def build_gang_of(gang_id: GangId, members: Sequence[Member], owners: OwnerIndex) -> Gang | None:
    """One gang, from its own pods alone; None when no pod is left or its pods may start one by one."""
    if not any(member.is_alive for member in members):
        return None
    return KINDS[gang_id.kind].assemble(gang_id.key, members, owners)
