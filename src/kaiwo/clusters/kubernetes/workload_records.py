"""What the API and the page ask of a cluster, for one whose work comes and goes with kubectl.

In:    what was told to the scheduler.   Out: records and news of workloads, and cordoned nodes.
Never: makes a second source of truth. Work and queues are objects of the cluster: whoever wants to change them here is
       told the kubectl command that does.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.workload_unit import BlockedWorkload
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.protocol import News
from kaiwo.model.errors import NotFoundError, RefusedError
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Phase, Workload, breaks_gang
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState

NO_PROGRAM = Program()


class Records:
    """The `Work` protocol, as far as Kubernetes leaves it to us."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache
        self.cancel = _refuse_one("delete it: kubectl delete pod or job")
        self.hold = _refuse_one("give its pods a scheduling gate, or suspend its job, with kubectl")
        self.release = _refuse_one("remove the gate, or resume its job, with kubectl")
        self.requeue = _refuse_one("delete its pods with kubectl; its controller makes new ones")

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "") -> int:
        """Refused: the pods themselves say so."""
        _refuse("write on its pods: kubectl annotate --overwrite pod POD kaiwo.ai/last-checkpoint=$(date +%s)")

    async def put(
        self,
        queues: Sequence[Any],
        items: Sequence[Any],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Any] = (),
    ) -> tuple[None, ...]:
        """Refused."""
        _refuse("kubectl apply takes queues, reservations and work")

    async def remove(
        self, queues: Sequence[str], workloads: Sequence[str], who: str = "", reservations: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Refused."""
        _refuse("kubectl delete removes queues, reservations and work")

    def reservations(self) -> Sequence[Reservation]:
        """As the objects of the cluster say."""
        return [found for _, found in sorted(self._cache.reservations.items())]

    async def forget_ended(self, names: Sequence[str], who: str = "") -> None:
        """Ended work is not kept here."""

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        """No new pods on this node, or again."""
        body = msgspec.json.encode({"spec": {"unschedulable": cordoned}})
        try:
            await self._client.patch(f"/api/v1/nodes/{name}", body)
        except ApiError as error:
            if error.is_not_found:
                raise NotFoundError(f"there is no node {name}") from None
            raise

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        """Refused: what must go and what may stay is more than we know."""
        _refuse(f"kubectl drain {name} does it, with its rules for DaemonSets and local data")

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

    def news(self, after: int) -> News:
        """The workloads that changed since the version of the last news; -1: all of them."""
        told = self._cache.published
        version, names = told.version, told.recent.since(after) if after >= 0 else None
        if names is None:
            return News(version, self.records(), (), is_all=True)
        found = {name: self._find(name) for name in names}
        living = [record for record in found.values() if record is not None]
        return News(version, living, [name for name, record in found.items() if record is None])

    def log_path(self, name: str, pod: str = "") -> str:
        """The output is with the kubelet: kubectl logs."""
        self.record(name)
        return ""

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


def _refuse(way_out: str) -> NoReturn:
    raise RefusedError(f"this cluster is Kubernetes, which keeps its own work; {way_out}")


def _refuse_one(way_out: str) -> Callable[..., Awaitable[None]]:
    async def refuse(name: str, who: str = "") -> None:
        _refuse(way_out)

    return refuse
