"""The fields of a JobSet that decide how many pods it has, and when."""

import msgspec

from kaiwo.clusters.kubernetes.gangs.jobs import JobSpec
from kaiwo.clusters.kubernetes.gangs.metadata import Metadata, Owner, Texts


class JobTemplate(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata | None = None
    spec: JobSpec | None = None


class Dependency(msgspec.Struct, frozen=True, gc=False):
    name: str
    status: str = "Ready"


class ReplicatedJob(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`replicas` equal Jobs."""

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
    """How many Jobs of one replicated job are how far."""

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


class JobSet(Owner, frozen=True, gc=False):
    spec: JobSetSpec | None = None
    status: JobSetStatus | None = None

    @property
    def is_in_order(self) -> bool:
        policy = self.spec.startup_policy if self.spec else None
        return policy is not None and policy.startup_policy_order == "InOrder"

    @property
    def replicated_jobs(self) -> tuple[ReplicatedJob, ...]:
        return (self.spec and self.spec.replicated_jobs) or ()

    def progress(self, name: str) -> Progress:
        """How far one replicated job is; nowhere while the status does not name it."""
        listed = (self.status and self.status.replicated_jobs_status) or ()
        return next((each for each in listed if each.name == name), Progress(name))
