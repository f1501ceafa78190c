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
from kaiwo.clusters.kubernetes.gangs.metadata import (
    Owner,
    OwnerCondition,
    Template,
    has_condition,
    read_annotation,
    read_count,
)
from kaiwo.clusters.kubernetes.gangs.ownership import Member, OwnerIndex, OwnerLink

GROUP = "batch"


FIRST_DELAY_S, LONGEST_DELAY_S = 10, 360  # of the Job controller, before it replaces a pod that failed
DEFAULT_BACKOFF_LIMIT = 6
OVER = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget", "Suspended")


class JobSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = False
    template: Template | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None

    @property
    def at_once(self) -> int:
        """The pods of a first wave."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return max(0, parallelism if self.completions is None else min(parallelism, self.completions))


class JobStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    succeeded: int | None = 0
    failed: int | None = 0
    conditions: tuple[OwnerCondition, ...] | None = None
    failed_indexes: str | None = ""  # `1,3-5`; only of a Job with a limit of failures for each index


class Job(Owner, frozen=True, gc=False):
    spec: JobSpec | None = None
    status: JobStatus | None = None

    @property
    def makes_pods(self) -> bool:
        """Not when it is suspended or over, or has failed more often than it may."""
        spec, status = self.spec or JobSpec(), self.status or JobStatus()
        limit = DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
        is_spent = spec.backoff_limit_per_index is None and (status.failed or 0) > limit
        is_over = bool(spec.suspend) or has_condition(status.conditions, *OVER)
        return super().makes_pods and not is_spent and not is_over

    @property
    def delay_s(self) -> int:
        """The least time before its controller replaces a pod that failed; 0: unknown.

        The delay doubles with every failure since the last success. The status may lag behind: then it is shorter.
        """
        failed, succeeded = (self.status and self.status.failed) or 0, (self.status and self.status.succeeded) or 0
        if not failed or succeeded:
            return 0
        return min(FIRST_DELAY_S << min(failed - 1, 10), LONGEST_DELAY_S)


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
