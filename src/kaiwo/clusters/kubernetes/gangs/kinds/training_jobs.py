"""PyTorchJob, MPIJob, TFJob and their siblings: all replicas are one gang.

An elastic policy gives the workers a minimum; a scheduling policy gives the whole job one, which is what the operator
itself writes into the PodGroups that it creates. The pods' labels name the job without its kind, so the owner's UID
decides which job a pod belongs to.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    Gang,
    GangKey,
    WantedPods,
    build_gang,
    build_ownerless_gang,
    owner_key,
    spread_minimum,
    wanted_together,
)
from kaiwo.clusters.kubernetes.gangs.labels import TRAINING_ROLES
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, OwnerCondition, Template, has_condition, read_gang_names
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "kubeflow.org"
KINDS = ("PyTorchJob", "MPIJob", "TFJob", "JAXJob", "PaddleJob", "XGBoostJob")
# A minimum for the whole job is spread in this order, since the workers depend on the first roles.
ROLES = ("launcher", "master", "chief", "ps", "worker")
OVER = ("Succeeded", "Failed", "Suspended")  # conditions in which it makes no more pods


class ReplicaSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = 1
    template: Template | None = None
    restart_policy: str | None = None


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
    """Each kind of job has its own name for the same map."""

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
        """In lower case, as in the pods' labels; roles that the others depend on come first."""
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


class TrainingStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[OwnerCondition, ...] | None = None


class TrainingJob(Owner, frozen=True, gc=False):
    spec: TrainingSpec | None = None
    status: TrainingStatus | None = None

    @property
    def makes_pods(self) -> bool:
        run = (self.spec and self.spec.run_policy) or RunPolicy()
        is_over = self.status is not None and has_condition(self.status.conditions, *OVER)
        return super().makes_pods and not run.suspend and not is_over

    def replaces_failed(self, member: Member) -> bool:
        """By the restart policy of its role."""
        roles = self.spec.roles if self.spec else {}
        return roles.get(_role_of(member), ReplicaSpec()).restart_policy != "Never"


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    """The owner itself, or the owner of the Job in which a newer MPI operator runs its launcher."""
    owner = member.owner
    if owner and owner.is_a("batch", "Job") and len(chain) > 1 and chain[1].reference.kind == "MPIJob":
        owner = chain[1].reference
    return owner_key(member, owner, GROUP, *KINDS)


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    job = owners.find(key.uid)
    if not isinstance(job, TrainingJob):
        return build_ownerless_gang(key, members, job)
    spec = job.spec or TrainingSpec()
    run = spec.run_policy or RunPolicy()
    wants = [_want(spec, role, _count(each), members) for role, each in spec.roles.items()]
    rule = "all replicas" if all(want.minimum == want.count for want in wants) else "the elastic policy's minimum"
    asked = run.scheduling_policy and run.scheduling_policy.min_available
    if asked:
        wants, rule = spread_minimum(wants, asked), "the scheduling policy's minimum"
    names = {role: read_gang_names(each.template, {}) for role, each in spec.roles.items()}
    wants = wanted_together(wants, names, members, _role_of)
    return build_gang(key, wants, members, _role_of, rule, run.suspend)


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
