"""What people can change in a Kubernetes cluster through Kaiwo: cordon nodes. For the rest, use kubectl.

Workloads, queues and reservations are objects of the cluster, which people change with kubectl: Kaiwo must not become
a second source of truth.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.protocol import Action, ChangedWorkload, NodeFault, WorkloadChange
from kaiwo.model.errors import KaiwoError, NotFoundError, RefusedError
from kaiwo.model.performance import ProgressReport
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program

WAYS_OUT: Mapping[Action, str] = {
    "cancel": "delete it: kubectl delete pod or job",
    "hold": "give its pods a scheduling gate, or suspend its job, with kubectl",
    "release": "remove the gate, or resume its job, with kubectl",
    "requeue": "delete its pods with kubectl; its controller makes new ones",
}


class KubernetesWork:
    """Implements WorkControl: every change is refused, and the refusal names the kubectl command."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    async def put(
        self,
        queues: Sequence[Queue],
        items: Sequence[tuple[Workload, Program]],
        who: str = "",
        dry_run: bool = False,
        reservations: Sequence[Reservation] = (),
    ) -> tuple[Queue | None, ...]:
        raise _refusal("kubectl apply takes queues, reservations and work")

    async def remove(
        self,
        queues: Sequence[str],
        workloads: Sequence[str],
        who: str = "",
        reservations: Sequence[str] = (),
        only_of: str | None = None,
    ) -> tuple[str, ...]:
        raise _refusal("kubectl delete removes queues, reservations and work")

    def reservations(self) -> Sequence[Reservation]:
        return [found for _, found in sorted(self._cache.reservations.items())]

    async def change(self, action: Action, name: str, who: str = "", only_of: str | None = None) -> None:
        raise _refusal(WAYS_OUT[action])

    async def change_many(
        self, action: Action, names: Sequence[str], who: str = "", only_of: str | None = None
    ) -> tuple[KaiwoError | None, ...]:
        return tuple(_refusal(WAYS_OUT[action]) for _ in names)

    async def set_many(
        self, names: Sequence[str], change: WorkloadChange, who: str = "", only_of: str | None = None
    ) -> tuple[ChangedWorkload | KaiwoError, ...]:
        way_out = (
            "annotate its pods: kubectl annotate --overwrite pod POD kaiwo.ai/priority=5, or change its controller"
        )
        return tuple(_refusal(way_out) for _ in names)

    async def checkpoint(self, name: str, at_s: int = 0, who: str = "", only_of: str | None = None) -> int:
        raise _refusal("write on its pods: kubectl annotate --overwrite pod POD kaiwo.ai/last-checkpoint=$(date +%s)")

    async def progress(self, report: ProgressReport, who: str = "", only_of: str | None = None) -> None:
        raise _refusal('write on its pods: kubectl annotate --overwrite pod POD kaiwo.ai/progress="step=2.1s"')

    async def forget_ended(self, names: Sequence[str], who: str = "", only_of: str | None = None) -> None:
        """There is nothing to forget: ended work is not kept here."""


class KubernetesNodes:
    """Implements NodeControl."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def cordon(self, name: str, cordoned: bool, reason: str = "", who: str = "") -> None:
        body = msgspec.json.encode({"spec": {"unschedulable": cordoned}})
        try:
            by = " ".join(filter(None, ("cordoned" if cordoned else "uncordoned", who and f"by {who}")))
            await self._client.patch(f"/api/v1/nodes/{name}", body, reason=f"{by}: {reason}" if reason else by)
        except ApiError as error:
            if error.is_not_found:
                raise NotFoundError(f"there is no node {name}") from None
            raise

    async def drain(self, name: str, reason: str = "", who: str = "") -> tuple[str, ...]:
        raise _refusal(f"kubectl drain {name} does it, with its rules for DaemonSets and local data")

    async def fail(self, name: str, fault: NodeFault, who: str = "") -> None:
        taint = f"kubectl taint nodes {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        raise _refusal(f"fence a node that is switched off with: {taint}")

    async def restore(self, name: str, who: str = "") -> None:
        raise _refusal(f"kubectl annotate node {name} kaiwo.ai/failures- makes Kaiwo forget its failures")


def _refusal(way_out: str) -> RefusedError:
    return RefusedError(f"this cluster is Kubernetes, which keeps its own work; {way_out}")
