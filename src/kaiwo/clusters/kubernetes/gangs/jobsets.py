"""JobSet: all pods of all its Jobs are one gang, wave by wave.

Pods that come only after others are bound or done are not waited for: the pods that can exist now are the gang. A
scheduler that waited for the rest would wait for ever.
"""

from collections.abc import Collection, Sequence

from kaiwo.clusters.kubernetes.gangs.groups import (
    SIZE_UNKNOWN,
    Group,
    Key,
    alive,
    build_flat_group,
    build_group,
    hold,
    with_former,
)
from kaiwo.clusters.kubernetes.gangs.jobset_spec import JobSet, ReplicatedJob
from kaiwo.clusters.kubernetes.gangs.jobset_waves import count_wave, split_attempts
from kaiwo.clusters.kubernetes.gangs.labels import JOBSET_NAME, JOBSET_ROLE, JOBSET_UID
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.owners import Link, Owners, explain_unknown
from kaiwo.clusters.kubernetes.gangs.wishes import read_names, together

GROUP = "jobset.x-k8s.io"


def claim(member: Member, line: Sequence[Link], owners: Owners) -> Key | None:
    """By the line of owners; by the pod's labels while its Job has not been seen."""
    if not line or (line[0].reference.group, line[0].reference.kind) != ("batch", "Job"):
        return None
    if len(line) > 1:
        above = line[1].reference
        is_ours = (above.group, above.kind) == (GROUP, "JobSet")
        return Key("JobSet", member.namespace, above.name, above.uid) if is_ours else None
    name, uid = member.labels.get(JOBSET_NAME), member.labels.get(JOBSET_UID)
    return Key("JobSet", member.namespace, name, uid) if line[0].owner is None and name and uid else None


def assemble(key: Key, members: Sequence[Member], owners: Owners) -> Group:
    jobset = owners.find(key.uid)
    if not isinstance(jobset, JobSet):
        return build_flat_group(key, members, len(alive(members)), SIZE_UNKNOWN, explain_unknown(jobset, str(key)))
    members, former = split_attempts(members)
    by_role: dict[str, list[Member]] = {}
    for member in members:
        by_role.setdefault(_role_of(member), []).append(member)
    wants = [count_wave(jobset, each, by_role, owners) for each in _together(jobset, by_role.keys())]
    rule = "all pods of the JobSet"
    if any(want.later for want in wants):
        rule = "pods of the JobSet that come before others are bound or done"
    waits = f"{key} is suspended; resume it" if jobset.spec and jobset.spec.suspend else ""
    group = build_group(key, wants, hold(members, _role_of), rule, waits)
    return with_former(group, former) if former else group


def _role_of(member: Member) -> str:
    return member.labels.get(JOBSET_ROLE) or "main"


def _together(jobset: JobSet, roles: Collection[str]) -> list[ReplicatedJob]:
    names = {each.name: read_names(each.job.template, each.annotations) for each in jobset.replicated_jobs}
    ours = together(names, roles)
    return [each for each in jobset.replicated_jobs if each.name in ours]
