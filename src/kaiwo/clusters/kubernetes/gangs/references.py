"""The objects that a pod depends on by name, beside those that own it.

In:    one pod.   Out: what its gang may look up by name, whether it exists or not.
"""

from kaiwo.clusters.kubernetes.gangs import jobsets, leaderworkersets, podgroups
from kaiwo.clusters.kubernetes.gangs.labels import JOBSET_NAME, LWS_NAME
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.other_podgroups import named_groups

Named = tuple[str, str, str, str]  # API group, kind, namespace, name


def names_used(member: Member) -> list[Named]:
    """Each kind that finds an object by name stands here, so that news of the object finds the pod."""
    found = [(group, "PodGroup", name) for group, name in named_groups(member)]
    if member.pod_group:
        found.append((podgroups.GROUP, "PodGroup", member.pod_group))
    if member.workload[0]:
        found.append((podgroups.GROUP, "Workload", member.workload[0]))
    if jobset := member.labels.get(JOBSET_NAME):
        found.append((jobsets.GROUP, "JobSet", jobset))  # found by label while the Job between has not been seen
    if replicas := member.labels.get(LWS_NAME):
        found.append((leaderworkersets.GROUP, "LeaderWorkerSet", replicas))
        found.append(("apps", "StatefulSet", member.name))  # a leader's workers
    return [(group, kind, member.namespace, name) for group, kind, name in found]
