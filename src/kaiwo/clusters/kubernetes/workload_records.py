"""Records of the workloads of a Kubernetes cluster, for the API and the page.

In:    what was published to the scheduler.   Out: a record for each workload, and which of them changed.
"""

from collections.abc import Sequence
from typing import Any

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.workload_unit import BlockedWorkload
from kaiwo.clusters.protocol import RecordChanges
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload import Phase, Workload, breaks_gang
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState

NO_PROGRAM = Program()


class Records:
    """What the cache knows of each workload, as records."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    def record(self, name: str) -> WorkloadRecord:
        """One living workload, by its name or by that of one of its pods."""
        namespace, _, pod = name.partition("/")
        found = self._find(name) or self._find(self._cache.workload_of((namespace, pod)) or "")
        if found is None:
            raise NotFoundError(f"there is no living workload '{name}'; kaiwo get workloads lists them")
        return found

    def records(self) -> Sequence[WorkloadRecord]:
        """Every living workload, with those that the scheduler is not told of."""
        told = self._cache.published
        return [*(self._record(workload) for workload in told.workloads.values()), *map(_held, told.blocked.values())]

    def records_since(self, version: int) -> RecordChanges:
        """The workloads that changed after this version; -1: all of them."""
        told = self._cache.published
        latest, names = told.version, told.recent.since(version) if version >= 0 else None
        if names is None:
            return RecordChanges(latest, self.records(), (), is_all=True)
        found = {name: self._find(name) for name in names}
        living = [record for record in found.values() if record is not None]
        return RecordChanges(latest, living, [name for name, record in found.items() if record is None])

    def _find(self, name: str) -> WorkloadRecord | None:
        told = self._cache.published
        if name in told.workloads:
            return self._record(told.workloads[name])
        return _held(told.blocked[name]) if name in told.blocked else None

    def _record(self, workload: Workload) -> WorkloadRecord:
        pods = self._cache.published.pods.get(workload.name, {}).values()
        started_s = min((pod.since_s for pod in pods), default=0)
        return WorkloadRecord(
            workload, NO_PROGRAM, _state(workload, [*pods]), attempt=min(len(pods), 1), started_s=started_s
        )


def _held(held: BlockedWorkload) -> WorkloadRecord:
    return WorkloadRecord(held.workload, NO_PROGRAM, WorkloadState.HELD, message=held.reason)


def _state(workload: Workload, pods: list[Any]) -> WorkloadState:
    if not pods:
        return WorkloadState.WAITING
    if all(pod.phase is Phase.RELEASING for pod in pods):
        return WorkloadState.STOPPING
    up = [pod.name for pod in pods if pod.phase is Phase.RUNNING]
    return WorkloadState.STARTING if breaks_gang(workload, up) or not up else WorkloadState.RUNNING
