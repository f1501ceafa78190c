"""PyTorchJob, MPIJob, TFJob and their siblings: all replicas are one gang.

An elastic policy gives the workers a minimum; a scheduling policy gives the whole job one, which is what the operator
itself writes into the PodGroups that it makes. The pods' labels name the job without its kind, so the owner's UID
decides to which job a pod belongs.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    SIZE_UNKNOWN,
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_flat_gang,
    build_gang,
    names_by_role,
)
from kaiwo.clusters.kubernetes.gangs.gang_names import read_gang_names, roles_in_gang
from kaiwo.clusters.kubernetes.gangs.labels import TRAINING_ROLES
from kaiwo.clusters.kubernetes.gangs.members import Member
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Template
from kaiwo.clusters.kubernetes.gangs.owners import OwnerIndex, OwnerLink, explain_unknown

GROUP = "kubeflow.org"
KINDS = ("PyTorchJob", "MPIJob", "TFJob", "JAXJob", "PaddleJob", "XGBoostJob")
# One minimum for the whole job is dealt in this order: without the first roles the workers have nobody to work for.
ROLES = ("launcher", "master", "chief", "ps", "worker")


class ReplicaSpec(msgspec.Struct, frozen=True, gc=False):
    replicas: int | None = 1
    template: Template | None = None


class ElasticPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_replicas: int | None = None
    max_replicas: int | None = None


class SchedulingPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    min_available: int | None = None


class RunPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = False


ReplicaSpecs = dict[str, ReplicaSpec | None]


class TrainingSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Each kind has its own name for the same map."""

    pytorch_replica_specs: ReplicaSpecs | None = None
    mpi_replica_specs: ReplicaSpecs | None = None
    tf_replica_specs: ReplicaSpecs | None = None
    jax_replica_specs: ReplicaSpecs | None = None
    paddle_replica_specs: ReplicaSpecs | None = None
    xgb_replica_specs: ReplicaSpecs | None = None
    elastic_policy: ElasticPolicy | None = None
    run_policy: RunPolicy | None = None
    launcher_creation_policy: str | None = "AtStartup"

    @property
    def roles(self) -> dict[str, ReplicaSpec]:
        """In lower case, as the pods' labels have them, with those first that the others need."""
        found = (
            self.pytorch_replica_specs
            or self.mpi_replica_specs
            or self.tf_replica_specs
            or self.jax_replica_specs
            or self.paddle_replica_specs
            or self.xgb_replica_specs
            or {}
        )
        roles = {name.lower(): spec or ReplicaSpec() for name, spec in found.items()}
        return dict(sorted(roles.items(), key=lambda item: _rank(item[0])))


class TrainingJob(Owner, frozen=True, gc=False):
    spec: TrainingSpec | None = None


def find_key(member: Member, line: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """The owner itself, or the owner of the Job in which a newer MPI operator runs its launcher."""
    above = [link.reference for link in line[:2]]
    if len(above) == 2 and (above[0].group, above[0].kind) == ("batch", "Job") and above[1].kind == "MPIJob":
        above = above[1:]
    if above and above[0].group == GROUP and above[0].kind in KINDS:
        return GangKey(above[0].kind, member.namespace, above[0].name, above[0].uid)
    return None


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    job = owners.find(key.uid)
    if not isinstance(job, TrainingJob):
        return build_flat_gang(key, members, len(alive(members)), SIZE_UNKNOWN, explain_unknown(job, str(key)))
    spec = job.spec or TrainingSpec()
    run = spec.run_policy or RunPolicy()
    wants = [_want(spec, role, _count(each), members) for role, each in spec.roles.items()]
    rule = "all replicas" if all(want.minimum == want.count for want in wants) else "the elastic policy's minimum"
    asked = run.scheduling_policy and run.scheduling_policy.min_available
    if asked:
        wants, rule = _deal(wants, asked), "the scheduling policy's minimum"
    names = {role: read_gang_names(each.template, {}) for role, each in spec.roles.items()}
    ours = roles_in_gang(names, {_role_of(each) for each in members})
    waits = f"{key} is suspended; resume it" if run.suspend else ""
    return build_gang(key, [want for want in wants if want.role in ours], names_by_role(members, _role_of), rule, waits)


def _rank(role: str) -> tuple[int, str]:
    return (ROLES.index(role) if role in ROLES else len(ROLES)), role


def _count(spec: ReplicaSpec) -> int:
    return 1 if spec.replicas is None else max(0, spec.replicas)


def _role_of(member: Member) -> str:
    return next((member.labels[label].lower() for label in TRAINING_ROLES if member.labels.get(label)), "main")


def _want(spec: TrainingSpec, role: str, count: int, members: Sequence[Member]) -> WantedPods:
    own = [each for each in members if _role_of(each) == role]
    if role == "launcher" and spec.launcher_creation_policy == "WaitForWorkersReady" and not own:
        return WantedPods(role, 0, 0, later=count)
    done = min(count, sum(each.has_succeeded for each in own))
    count -= done
    return WantedPods(role, count, min(count, _least_workers(spec, count) if role == "worker" else count), done=done)


def _least_workers(spec: TrainingSpec, count: int) -> int:
    """The operator fills in the minimum from the maximum where only that is given."""
    elastic = spec.elastic_policy or ElasticPolicy()
    asked = elastic.max_replicas if elastic.min_replicas is None else elastic.min_replicas
    return count if asked is None else max(0, asked)


def _deal(wants: Sequence[WantedPods], minimum: int) -> list[WantedPods]:
    """One number for the whole job: the roles that the others need take theirs first."""
    dealt = []
    for want in wants:
        share = min(want.count, minimum)
        minimum -= share
        dealt.append(msgspec.structs.replace(want, minimum=share))
    return dealt
