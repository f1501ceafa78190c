"""JobSet: all pods of all its Jobs are one gang, wave by wave.

A replicated job starts after those before it (`InOrder`) or after those it depends on. With exclusive placement the
followers of a Job are refused until its leader, the pod of index 0, is bound.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs import labels
from kaiwo.clusters.kubernetes.gangs.gang import (
    ExclusiveDomain,
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_gang,
    build_ownerless_gang,
    owner_key,
    wanted_together,
    with_previous_run,
)
from kaiwo.clusters.kubernetes.gangs.kinds.job import Job, JobSpec, count_wanted
from kaiwo.clusters.kubernetes.gangs.metadata import Metadata, Owner, Texts, read_count, read_gang_names
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "jobset.x-k8s.io"


class JobTemplate(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata | None = None
    spec: JobSpec | None = None


class Dependency(msgspec.Struct, frozen=True, gc=False):
    name: str
    status: str = "Ready"


class ReplicatedJob(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    replicas: int | None = 1
    template: JobTemplate | None = None
    depends_on: tuple[Dependency, ...] | None = None

    @property
    def count(self) -> int:
        return 1 if self.replicas is None else max(0, self.replicas)

    @property
    def job(self) -> JobSpec:
        return (self.template and self.template.spec) or JobSpec()

    @property
    def annotations(self) -> Texts:
        metadata = self.template and self.template.metadata
        return (metadata and metadata.annotations) or {}


class StartupPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    startup_policy_order: str | None = "AnyOrder"


class JobSetSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicated_jobs: tuple[ReplicatedJob, ...] | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = False


class Progress(msgspec.Struct, frozen=True, gc=False):
    name: str
    ready: int | None = 0
    succeeded: int | None = 0
    failed: int | None = 0

    @property
    def done(self) -> int:
        return self.succeeded or 0

    @property
    def started(self) -> int:
        return (self.ready or 0) + self.done + (self.failed or 0)


class JobSetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicated_jobs_status: tuple[Progress, ...] | None = None
    terminal_state: str | None = ""


class JobSet(Owner, frozen=True, gc=False):
    spec: JobSetSpec | None = None
    status: JobSetStatus | None = None

    @property
    def makes_pods(self) -> bool:
        is_over = bool(self.spec and self.spec.suspend) or bool(self.status and self.status.terminal_state)
        return super().makes_pods and not is_over

    @property
    def is_in_order(self) -> bool:
        policy = self.spec.startup_policy if self.spec else None
        return policy is not None and policy.startup_policy_order == "InOrder"

    @property
    def replicated_jobs(self) -> tuple[ReplicatedJob, ...]:
        return (self.spec and self.spec.replicated_jobs) or ()

    def progress(self, name: str) -> Progress:
        listed = (self.status and self.status.replicated_jobs_status) or ()
        return next((each for each in listed if each.name == name), Progress(name))


ByRole = Mapping[str, Sequence[Member]]


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """By the chain of owners; by the pod's labels while its Job has not been seen."""
    if not member.owner or not member.owner.is_a("batch", "Job"):
        return None
    if len(chain) > 1:
        return owner_key(member, chain[1].reference, GROUP, "JobSet")
    name, uid = member.labels.get(labels.JOBSET_NAME), member.labels.get(labels.JOBSET_UID)
    return GangKey("JobSet", member.namespace, name, uid) if chain[0].owner is None and name and uid else None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    jobset = owners.find(key.uid)
    if not isinstance(jobset, JobSet):
        return build_ownerless_gang(key, members, jobset)
    members, former = _split_attempts(members)
    by_role: dict[str, list[Member]] = {}
    for member in members:
        by_role.setdefault(_role_of(member), []).append(member)
    wants = [_count_wave(jobset, each, by_role, owners) for each in jobset.replicated_jobs]
    names = {each.name: read_gang_names(each.job.template, each.annotations) for each in jobset.replicated_jobs}
    wants = wanted_together(wants, names, members, _role_of)
    rule = "all pods of the JobSet"
    if any(want.later for want in wants):
        rule = "pods of the JobSet that come before others are bound or done"
    gang = build_gang(key, wants, members, _role_of, rule, bool(jobset.spec and jobset.spec.suspend))
    domains = tuple(sorted(_domains(jobset, by_role, owners), key=lambda domain: domain.name))
    gang = msgspec.structs.replace(gang, domains=domains) if domains else gang
    return with_previous_run(gang, former) if former else gang


def _count_wave(jobset: JobSet, replicated: ReplicatedJob, by_role: ByRole, owners: OwnerIndex) -> WantedPods:
    """How many of the pods that this replicated job will run at once can exist now, and how many come later."""
    each, members = replicated.job.at_once, by_role.get(replicated.name, ())
    if not members and not _is_released(jobset, replicated):
        return WantedPods(replicated.name, 0, 0, later=replicated.count * each)
    jobs = [(pods, _count_job(replicated, pods, owners)) for pods in _newest_by_job(members)]
    total = sum(count for _, count in jobs)
    now = sum(_count_now(jobset, replicated, pods, count) for pods, count in jobs)
    # Jobs that are done and whose pods are gone appear in the status only.
    done_unseen = max(0, jobset.progress(replicated.name).done - sum(count == 0 for _, count in jobs))
    unseen = max(0, replicated.count - len(jobs) - done_unseen)
    total += unseen * each
    if unseen and not _is_held_up(jobset, replicated, by_role):
        now += unseen * _count_now(jobset, replicated, (), each)
    return WantedPods(replicated.name, now, now, later=total - now, done=max(0, replicated.count * each - total))


def _split_attempts(members: Sequence[Member]) -> tuple[list[Member], list[Member]]:
    """The pods of the last attempt of the whole set, and those of earlier attempts, which are being deleted.

    A role that must wait for its turn again has only pods of the old attempt; they do not mean that its turn has come.
    """
    last = max((_attempt(each)[0] for each in members), default=0)
    newest = [each for each in members if _attempt(each)[0] == last]
    return newest, [each for each in members if _attempt(each)[0] != last]


def _is_released(jobset: JobSet, replicated: ReplicatedJob) -> bool:
    """Whether its Jobs are created now: those that come first have started or completed."""
    counts = {each.name: each.count for each in jobset.replicated_jobs}
    for dependency in replicated.depends_on or ():
        progress = jobset.progress(dependency.name)
        reached = progress.done if dependency.status == "Complete" else progress.started
        if reached < counts.get(dependency.name, 0):
            return False
    return all(jobset.progress(name).started >= counts[name] for name in _names_before(jobset, replicated))


def _is_held_up(jobset: JobSet, replicated: ReplicatedJob, by_role: ByRole) -> bool:
    """Whether a pod that must come first lost its node. Missing Jobs are created only when that pod runs again."""
    dependencies = [each.name for each in replicated.depends_on or ()]
    names = (*dependencies, *_names_before(jobset, replicated))
    return any(not pod.is_bound for name in names for pod in alive(by_role.get(name, ())))


def _names_before(jobset: JobSet, replicated: ReplicatedJob) -> list[str]:
    if not jobset.is_in_order:
        return []
    names = [each.name for each in jobset.replicated_jobs]
    return names[: names.index(replicated.name)]


def _newest_by_job(members: Sequence[Member]) -> list[list[Member]]:
    """The pods of each Job's last attempt; those of earlier attempts are being deleted."""
    newest: dict[str, tuple[tuple[int, int], list[Member]]] = {}
    for member in members:
        job = member.owner.name if member.owner else ""  # re-created under its old name
        attempt = _attempt(member)
        last, pods = newest.get(job, (attempt, []))
        if job not in newest or last < attempt:
            newest[job] = (attempt, [member])
        elif last == attempt:
            pods.append(member)
    return [pods for _, pods in newest.values()]


def _attempt(member: Member) -> tuple[int, int]:
    """Restarts of the whole set, then of this Job alone."""
    of_set, of_job = member.labels.get(labels.JOBSET_ATTEMPT), member.labels.get(labels.JOBSET_JOB_ATTEMPT)
    return read_count(of_set) or 0, read_count(of_job) or 0


def _count_job(replicated: ReplicatedJob, pods: Sequence[Member], owners: OwnerIndex) -> int:
    job = owners.find(pods[0].owner.uid) if pods[0].owner else None
    spec = (job.spec or JobSpec()) if isinstance(job, Job) else replicated.job
    return count_wanted(spec, job.status if isinstance(job, Job) else None, pods)


def _count_now(jobset: JobSet, replicated: ReplicatedJob, pods: Sequence[Member], count: int) -> int:
    """How many of the pods that one Job wants can exist at this moment.

    A follower is admitted only while its leader exists and has a node. When both are lost, the leader comes back
    alone, even if other followers still run.
    """
    living = alive(pods)
    if not _is_exclusive(jobset, replicated, pods) or any(_leads(pod) and pod.is_bound for pod in living):
        return count
    followers = sum(not _leads(pod) for pod in living)
    leaders = 0 if any(_leads(pod) and pod.has_succeeded for pod in pods) else 1
    return min(count, followers + leaders)


def _is_exclusive(jobset: JobSet, replicated: ReplicatedJob, pods: Sequence[Member]) -> bool:
    return bool(_exclusive_level(jobset, replicated, pods))


def _exclusive_level(jobset: JobSet, replicated: ReplicatedJob, pods: Sequence[Member]) -> str:
    """The level on which each of its Jobs has a domain to itself, which the Job's leader chooses; empty: none."""
    places = [*(pod.annotations for pod in pods[:1]), replicated.annotations, jobset.annotations]
    if any(labels.JOBSET_NODE_SELECTOR in place for place in places):
        return ""
    return next((level for place in places if (level := place.get(labels.JOBSET_EXCLUSIVE))), "")


def _domains(jobset: JobSet, by_role: ByRole, owners: OwnerIndex) -> Iterator[ExclusiveDomain]:
    """The domain of each Job, with the pods that come once its leader is bound."""
    for replicated in jobset.replicated_jobs:
        for pods in _newest_by_job(by_role.get(replicated.name, ())):
            living, level = alive(pods), _exclusive_level(jobset, replicated, pods)
            if not level or not living or pods[0].owner is None:
                continue
            names = tuple(sorted(pod.name for pod in living))
            leader = next((pod for pod in living if _leads(pod)), None)
            later = 0
            if leader is not None and not leader.is_bound:
                later = max(0, _count_job(replicated, pods, owners) - len(living))
            yield ExclusiveDomain(
                pods[0].owner.name, level, names, leader=leader.name if leader is not None else "", later=later
            )


def _leads(pod: Member) -> bool:
    return pod.annotations.get(labels.JOB_INDEX) == "0"


def _role_of(member: Member) -> str:
    return member.labels.get(labels.JOBSET_ROLE) or "main"
