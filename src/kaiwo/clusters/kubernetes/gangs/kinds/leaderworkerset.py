"""LeaderWorkerSet: each replica, a leader and its workers, is a gang of its own.

The workers' StatefulSet belongs to the leader's Pod, so the pods' labels say which replica is theirs; the size stands
in an annotation. With exclusive placement the workers are made only after the leader is bound, with the start-up
policy `LeaderReady` only after it is ready: until then the leader is the gang.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_gang,
    names_by_role,
    with_previous_run,
)
from kaiwo.clusters.kubernetes.gangs.gang_names import read_gang_names, roles_in_gang
from kaiwo.clusters.kubernetes.gangs.labels import (
    LWS_EXCLUSIVE,
    LWS_NAME,
    LWS_REPLICA,
    LWS_REPLICA_KEY,
    LWS_SIZE,
    LWS_WORKER,
)
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Template, read_count
from kaiwo.clusters.kubernetes.gangs.owners import OwnerIndex, OwnerLink

GROUP = "leaderworkerset.x-k8s.io"


class LeaderWorkerTemplate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    size: int | None = 1
    leader_template: Template | None = None  # none: a leader is made like a worker
    worker_template: Template | None = None


class LeaderWorkerSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    leader_worker_template: LeaderWorkerTemplate | None = None
    startup_policy: str | None = "LeaderCreated"


class LeaderWorkerSet(Owner, frozen=True, gc=False):
    spec: LeaderWorkerSpec | None = None


def find_key(member: Member, line: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    name = member.labels.get(LWS_NAME)
    if not name or not line or (line[0].reference.group, line[0].reference.kind) != ("apps", "StatefulSet"):
        return None
    replica = member.labels.get(LWS_REPLICA) or member.labels.get(LWS_REPLICA_KEY)
    return GangKey("LeaderWorkerSet", member.namespace, name, part=replica) if replica else None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    """Pods that leave and were of another size are of the replica before this one."""
    group = _assemble(key, members, owners)
    sizes = {each.annotations.get(LWS_SIZE) for each in alive(members)}
    former = [each for each in members if each.is_leaving and each.annotations.get(LWS_SIZE) not in sizes]
    return with_previous_run(group, former) if sizes and former else group


def _assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    owner = owners.find_by_name(GROUP, "LeaderWorkerSet", key.namespace, key.name)
    spec = (owner.spec if isinstance(owner, LeaderWorkerSet) else None) or LeaderWorkerSpec()
    size = _read_size(spec, members)
    held = names_by_role(members, _role_of)
    leader = next((each for each in alive(members) if _role_of(each) == "leader"), None)
    why_later = "" if "worker" in held else _explain_later(spec, leader)
    if why_later:
        wants = [WantedPods("leader", 1, 1), WantedPods("worker", 0, 0, later=size - 1)]
        return build_gang(key, _together(spec, wants, members), held, why_later)
    wants = [WantedPods("leader", 1, 1), WantedPods("worker", size - 1, size - 1)]
    group = build_gang(key, _together(spec, wants, members), held, "the leader and the workers of one replica")
    if not group.blocked_by or leader is None or "worker" in held or _has_worker_set(leader, owners):
        return group
    refused = f"no StatefulSet {leader.name} makes its workers; while it does not come, `kubectl get events` says why"
    return msgspec.structs.replace(group, blocked_by=f"{group.blocked_by}; {refused}")


def _together(spec: LeaderWorkerSpec, wants: Sequence[WantedPods], members: Sequence[Member]) -> list[WantedPods]:
    """Without the half that is in a gang of its own."""
    template = spec.leader_worker_template or LeaderWorkerTemplate()
    names = {
        "leader": read_gang_names(template.leader_template or template.worker_template, {}),
        "worker": read_gang_names(template.worker_template, {}),
    }
    ours = roles_in_gang(names, {_role_of(each) for each in members})
    return [want for want in wants if want.role in ours]


def _read_size(spec: LeaderWorkerSpec, members: Sequence[Member]) -> int:
    """The pods' own word first: after an update the old replicas keep their size. Of a replica that is made anew with
    another size the old pods may still be leaving, so the living count, and of these the leader.
    """
    living = alive(members)
    for some in ([each for each in living if _role_of(each) == "leader"], living, members):
        if known := [size for each in some if (size := read_count(each.annotations.get(LWS_SIZE)))]:
            return max(known)
    template = spec.leader_worker_template or LeaderWorkerTemplate()
    return max(1, template.size or 1)


def _role_of(member: Member) -> str:
    return "leader" if member.labels.get(LWS_WORKER) == "0" else "worker"


def _explain_later(spec: LeaderWorkerSpec, leader: Member | None) -> str:
    """Why the workers come later; empty when they do not, or when they may come now."""
    if leader is None:
        return ""
    if LWS_EXCLUSIVE in leader.annotations and not leader.is_bound:
        return "the leader alone: exclusive placement makes the workers after it is bound"
    if spec.startup_policy == "LeaderReady" and not leader.is_ready:
        return "the leader alone: the start-up policy makes the workers after it is ready"
    return ""


def _has_worker_set(leader: Member, owners: OwnerIndex) -> bool:
    return owners.find_by_name("apps", "StatefulSet", leader.namespace, leader.name) is not None
