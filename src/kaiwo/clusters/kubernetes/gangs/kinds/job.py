"""Job: the pods that it runs at once are the gang.

A Job with more completions than parallelism runs in waves: each wave in turn is the gang. A KaiwoJob's pods belong to
the Job that it owns.
"""

from collections.abc import Sequence

import msgspec

from kaiwo.clusters.kubernetes.gangs.gang import (
    Gang,
    GangKey,
    WantedPods,
    alive,
    build_gang,
    build_ownerless_gang,
    owner_key,
)
from kaiwo.clusters.kubernetes.gangs.labels import KUEUE_MINIMUM
from kaiwo.clusters.kubernetes.gangs.metadata import Owner, Template, read_annotation, read_count
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "batch"


class JobSpec(msgspec.Struct, frozen=True, gc=False):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = False
    template: Template | None = None

    @property
    def at_once(self) -> int:
        """The pods of a first wave."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return max(0, parallelism if self.completions is None else min(parallelism, self.completions))


class JobStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    succeeded: int | None = 0
    failed_indexes: str | None = ""  # `1,3-5`; only of a Job with a limit of failures for each index


class Job(Owner, frozen=True, gc=False):
    spec: JobSpec | None = None
    status: JobStatus | None = None


def find_key(member: Member, chain: Sequence[OwnerLink], owners: OwnerIndex) -> GangKey | None:
    return owner_key(member, member.owner, GROUP, "Job")


def assemble(key: GangKey, members: Sequence[Member], owners: OwnerIndex) -> Gang:
    job = owners.find(key.uid)
    if not isinstance(job, Job):
        return build_ownerless_gang(key, members, job)
    spec = job.spec or JobSpec()
    count = count_wanted(spec, job.status, members)
    left = _count_left(spec, job.status, members)
    minimum = _read_minimum(job, spec)
    rule = "pods of the Job that run at once" if minimum is None else "the Job's smallest parallelism"
    least = count if minimum is None else min(count, minimum)
    done = spec.at_once - count if spec.completions is None else spec.completions - left
    want = WantedPods("main", count, least, later=max(0, left - count), done=done)
    return build_gang(key, [want], members, lambda _: "main", rule, spec.suspend)


def count_wanted(spec: JobSpec, status: JobStatus | None, members: Sequence[Member]) -> int:
    """How many pods the Job's controller keeps at this moment."""
    if spec.completions is not None:
        return min(spec.at_once, _count_left(spec, status, members))
    # A work queue without a number of completions: no pod is replaced once one has succeeded.
    return min(spec.at_once, len(alive(members))) if _count_succeeded(status, members) else spec.at_once


def _count_left(spec: JobSpec, status: JobStatus | None, members: Sequence[Member]) -> int:
    failed = count_indexes((status and status.failed_indexes) or "")
    return max(0, (spec.completions or 0) - _count_succeeded(status, members) - failed)


def _count_succeeded(status: JobStatus | None, members: Sequence[Member]) -> int:
    """The status lags behind the pods, so a pod that it has not counted yet counts too."""
    return max((status and status.succeeded) or 0, sum(each.has_succeeded for each in members))


def count_indexes(text: str) -> int:
    """`1,3-5` are four."""
    total = 0
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = read_count(first), read_count(last if dash else first)
        if low is not None and high is not None:
            total += max(0, high - low + 1)
    return total


def _read_minimum(job: Job, spec: JobSpec) -> int | None:
    """None: all of them. As everywhere, the template takes precedence over the Job."""
    for place in ((spec.template or Template()).annotations, job.annotations):
        for text in (read_annotation("min-pods", [place]), place.get(KUEUE_MINIMUM)):
            if asked := read_count(text):
                return asked
        if read_annotation("gang", [place]) == "false":
            return 1
    return None
