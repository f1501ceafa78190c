"""LeaderWorkerSet: each replica, a leader and its workers, is a gang of its own.

The workers' StatefulSet belongs to the leader's pod, so the replica is read from the pods' labels; the size is in an
annotation. With exclusive placement the workers are created only after the leader is bound, with the start-up policy
`LeaderReady` only after it is ready: until then the leader is the gang.
"""

from collections.abc import Iterator, Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs import labels
from kaiwo.clusters.kubernetes.gangs.gang import (
    ExclusiveDomain,
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_gang,
    wanted_together,
    with_previous_run,
)
from kaiwo.clusters.kubernetes.gangs.metadata import (
    Metadata,
    Owner,
    Template,
    TemplateSpec,
    read_count,
    read_gang_names,
)
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "leaderworkerset.x-k8s.io"


class WorkerTemplate(msgspec.Struct, frozen=True, gc=False):
    """The template of the workers, whose specification is read while they do not exist."""

    metadata: Metadata | None = None
    spec: dict[str, object] | None = None

    @property
    def plain(self) -> Template:
        return Template(self.metadata, msgspec.convert(self.spec or {}, TemplateSpec))


class LeaderWorkerTemplate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    size: int | None = 1
    leader_template: Template | None = None  # none: a leader is made like a worker
    worker_template: WorkerTemplate | None = None


class LeaderWorkerSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    leader_worker_template: LeaderWorkerTemplate | None = None
    startup_policy: str | None = "LeaderCreated"


class LeaderWorkerSet(Owner, frozen=True, gc=False):
    spec: LeaderWorkerSpec | None = None


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    name = member.labels.get(labels.LWS_NAME)
    if not name or not member.owner or not member.owner.is_a("apps", "StatefulSet"):
        return None
    replica = member.labels.get(labels.LWS_REPLICA) or member.labels.get(labels.LWS_REPLICA_KEY)
    return GangKey("LeaderWorkerSet", member.namespace, name, part=replica) if replica else None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    """Terminating pods with another size belong to the replica before this one."""
    gang = _assemble(key, members, owners)
    sizes = {each.annotations.get(labels.LWS_SIZE) for each in alive(members)}
    former = [each for each in members if each.is_leaving and each.annotations.get(labels.LWS_SIZE) not in sizes]
    return with_previous_run(gang, former) if sizes and former else gang


def _assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    owner = owners.find_by_name(GROUP, "LeaderWorkerSet", key.namespace, key.name)
    spec = (owner.spec if isinstance(owner, LeaderWorkerSet) else None) or LeaderWorkerSpec()
    size = _read_size(spec, members)
    leader = next((each for each in alive(members) if _role_of(each) == "leader"), None)
    has_workers = any(_role_of(each) == "worker" for each in alive(members))
    why_later = "" if has_workers else _explain_later(spec, leader)
    workers = WantedPods("worker", 0, 0, later=size - 1) if why_later else WantedPods("worker", size - 1, size - 1)
    template = spec.leader_worker_template or LeaderWorkerTemplate()
    of_workers = template.worker_template.plain if template.worker_template is not None else None
    names = {
        "leader": read_gang_names(template.leader_template or of_workers, {}),
        "worker": read_gang_names(of_workers, {}),
    }
    wants = wanted_together([WantedPods("leader", 1, 1), workers], names, members, _role_of)
    gang = build_gang(key, wants, members, _role_of, why_later or "the leader and the workers of one replica")
    if domains := tuple(_domains(template, alive(members), leader, 0 if has_workers else size - 1)):
        gang = msgspec.structs.replace(gang, domains=domains)
    if why_later or not gang.blocked_by or leader is None or has_workers or _has_worker_set(leader, owners):
        return gang
    refused = f"no StatefulSet {leader.name} makes its workers; while it does not come, `kubectl get events` says why"
    return msgspec.structs.replace(gang, blocked_by=f"{gang.blocked_by}; {refused}")


def _read_size(spec: LeaderWorkerSpec, members: Sequence[Member]) -> int:
    """The pods come before the spec: after an update the old replicas keep their size. Old pods of a replica that is
    re-created with another size may still be terminating, so live pods come first, and among them the leader.
    """
    living = alive(members)
    for some in ([each for each in living if _role_of(each) == "leader"], living, members):
        if known := [size for each in some if (size := read_count(each.annotations.get(labels.LWS_SIZE)))]:
            return max(known)
    template = spec.leader_worker_template or LeaderWorkerTemplate()
    return max(1, template.size or 1)


def _role_of(member: Member) -> str:
    return "leader" if member.labels.get(labels.LWS_WORKER) == "0" else "worker"


def _explain_later(spec: LeaderWorkerSpec, leader: Member | None) -> str:
    """Why the workers are created later; empty when they are created together with the leader, or may be now."""
    if leader is None:
        return ""
    if labels.LWS_EXCLUSIVE in leader.annotations and not leader.is_bound:
        return "the leader alone: exclusive placement makes the workers after it is bound"
    if spec.startup_policy == "LeaderReady" and not leader.is_ready:
        return "the leader alone: the start-up policy makes the workers after it is ready"
    return ""


def _domains(
    template: LeaderWorkerTemplate, members: Sequence[Member], leader: Member | None, missing: int
) -> Iterator[ExclusiveDomain]:
    """The domain of the replica, with the workers that come once its leader is bound, and those of its sub-groups."""
    first = leader or min(members, key=lambda each: each.name, default=None)
    if first is None:
        return
    around, later = "", missing if leader is not None and not leader.is_bound else 0
    if level := first.annotations.get(labels.LWS_EXCLUSIVE, ""):
        around = leader.name if leader is not None else "replica"
        own = template.worker_template if template.leader_template is not None else None
        yield ExclusiveDomain(
            around,
            level,
            tuple(sorted(each.name for each in members)),
            leader=leader.name if leader is not None else "",
            later=later,
            template=own.spec if own is not None else None,
        )
    by_number: dict[str, list[str]] = {}
    level = first.annotations.get(labels.LWS_SUB_GROUP_EXCLUSIVE, "")
    # Workers that come later are of other sub-groups, too: until then the domain around all of them counts.
    for each in members if level and not (around and later) else ():
        if number := each.labels.get(labels.LWS_SUB_GROUP):
            by_number.setdefault(number, []).append(each.name)
    for number, names in sorted(by_number.items()):
        yield ExclusiveDomain(f"subgroup-{number}", level, tuple(sorted(names)), around)


def _has_worker_set(leader: Member, owners: OwnerIndex) -> bool:
    return owners.find_by_name("apps", "StatefulSet", leader.namespace, leader.name) is not None
