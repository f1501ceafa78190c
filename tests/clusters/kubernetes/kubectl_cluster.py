"""A Kubernetes cluster under test: objects on the real server, and a picture made of nothing but our events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.connection import MERGE, STRATEGIC
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.model.events import Event, PodChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Eviction, EvictionCause, Plan, Start
from kaiwo.model.workload import Phase, Pod, Workload
from tests.clusters.told_state import ToldState
from tests.controlplane.plane import Plane
from tests.waiting import until, until_answer

WHOLE_MIB = 192 * 1024
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/kaiwo-scheduler"
Json = dict[str, Any]


class Kubectl:
    """What people and kubelets do, through our own client: a process for each step would take minutes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def create(self, path: str, body: Json) -> Json:
        return msgspec.json.decode(await self.client.write("POST", path, msgspec.json.encode(body)))

    async def get(self, path: str) -> Json:
        return msgspec.json.decode(await self.client.read(path))

    async def patch(self, path: str, body: Json, content_type: str = MERGE) -> None:
        await self.client.patch(path, msgspec.json.encode(body), content_type)

    async def delete(self, path: str, grace_s: int | None = 0) -> None:
        body = None if grace_s is None else msgspec.json.encode({"gracePeriodSeconds": grace_s})
        try:
            await self.client.write("DELETE", path, body)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def node(self, name: str, gpus: int = 8, resource: str = "amd.com/gpu", **metadata: Any) -> None:
        """A node that is ready, with the labels that a GPU operator puts on it."""
        labels = {"kubernetes.io/hostname": name, "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
        metadata["labels"] = labels | metadata.get("labels", {})
        await self.create("/api/v1/nodes", {"metadata": {"name": name, **metadata}})
        amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", resource: str(gpus), "ephemeral-storage": "1Ti"}
        await self.patch(
            f"/api/v1/nodes/{name}/status",
            {
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posts"}],
                }
            },
            STRATEGIC,
        )
        # Without the node controller nobody takes the taint of a new node away.
        await self.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    async def pod(self, name: str, gpus: int = 1, namespace: str = "default", **spec: Any) -> Json:
        """A pod for our scheduler; `annotations` and `labels` go to its metadata."""
        metadata = {key: spec.pop(key) for key in ("annotations", "labels", "ownerReferences") if key in spec}
        amounts = {"cpu": "1", "memory": "1Gi"} | ({"amd.com/gpu": str(gpus)} if gpus else {})
        container = {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"schedulerName": SCHEDULER, "containers": [container]} | spec
        return await self.create(
            f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name, **metadata}, "spec": spec}
        )

    async def phase(self, name: str, phase: str, namespace: str = "default") -> None:
        """What a kubelet would report."""
        await self.patch(pod_path(name, namespace) + "/status", {"status": {"phase": phase}})

    async def read_pod(self, name: str, namespace: str = "default") -> Json:
        return await self.get(pod_path(name, namespace))

    async def condition(self, name: str) -> Json:
        """The pod's PodScheduled condition."""
        conditions = (await self.read_pod(name))["status"].get("conditions", [])
        return next((item for item in conditions if item["type"] == "PodScheduled"), {})

    async def clean(self) -> None:
        """Take away what an earlier test left."""
        for path in ("/api/v1/pods", "/api/v1/nodes", "/apis/batch/v1/jobs", "/apis/policy/v1/poddisruptionbudgets"):
            for item in (await self.get(path))["items"]:
                where, what = path.rsplit("/", 1)
                space = item["metadata"].get("namespace")
                await self.delete(f"{where}/{f'namespaces/{space}/' if space else ''}{what}/{item['metadata']['name']}")
        await self.delete(LEASE)  # a killed leader's


class Scene:
    """A cluster with a reader."""

    def __init__(self, cluster: KubernetesCluster, kubectl: Kubectl) -> None:
        self.cluster, self.kubectl = cluster, kubectl
        self.state = ToldState()
        self.seen: list[Event] = []

    async def read(self) -> None:
        async for batch in self.cluster.events():
            self.seen += batch
            self.state.patch(batch)

    async def until(self, condition: Callable[[], object], what: str = "it") -> None:
        await until(condition, what)

    async def until_waiting(self, *names: str) -> None:
        await until(lambda: all(full(name) in self.state.workloads for name in names), f"{names} to wait")

    async def start(self, *starts: Start) -> tuple[str, ...]:
        """As the loop does: what was decided is assumed, then applied."""
        for start in starts:
            pod = Pod(start.workload, start.pod, start.node, Phase.ASSUMED, start.devices)
            self.state.patch([PodChanged(pod)])
        return await self.cluster.apply(Plan(starts=starts))

    async def evict(self, name: str, *slots: str) -> tuple[str, ...]:
        """As the loop does: what was decided is assumed, then applied."""
        evictions = tuple(
            Eviction(full(name), slot, EvictionCause.PREEMPT, "default/other") for slot in slots or ("main-0",)
        )
        for each in evictions:
            if pod := self.state.pods.get((each.workload, each.pod)):
                self.state.patch([PodChanged(msgspec.structs.replace(pod, phase=Phase.RELEASING))])
        return await self.cluster.apply(Plan(evictions=evictions))

    async def truth(self) -> ToldState:
        """What the books say when nothing is under way any more."""
        await until(lambda: not self.cluster.cache.in_flight.starts, "the last Binding")
        self.cluster._publish_now()
        truth = ToldState()
        truth.patch(self.cluster.cache.whole_state())
        return truth

    def workload(self, name: str) -> Workload:
        return self.state.workloads[full(name)]


@asynccontextmanager
async def opened(plane: Plane, nodes: int = 2) -> AsyncIterator[Scene]:
    """A clean cluster with a few nodes; when the test is over, the events must have told the whole truth."""
    client = Client(read_kubeconfig(plane.kubeconfig))
    kubectl = Kubectl(client)
    try:
        await kubectl.clean()
        for number in range(1, nodes + 1):
            await kubectl.node(f"node-{number}")
        async with opened_here(plane, kubectl) as scene:
            yield scene
    finally:
        await client.close()


@asynccontextmanager
async def opened_here(plane: Plane, kubectl: Kubectl) -> AsyncIterator[Scene]:
    """The same without cleaning: another scheduler process on what is there."""
    cluster = KubernetesCluster(read_kubeconfig(plane.kubeconfig))
    scene = Scene(cluster, kubectl)
    reader = asyncio.create_task(scene.read())
    try:
        await until(lambda: scene.seen or reader.done(), "the first batch")
        yield scene
        # Asked again each time: the scheduler may still be writing.
        truth = await until_answer(
            scene.truth, lambda now: vars(scene.state) == vars(now), "the events to tell the truth"
        )
        assert truth.overcommitted() == []
    finally:
        await cluster.close()
        await reader


def full(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def pod_path(name: str, namespace: str = "default") -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def whole(*gpus: int) -> tuple[Share, ...]:
    return tuple(Share(f"gpu-{gpu}", 1000, WHOLE_MIB) for gpu in gpus)


def start_of(name: str, slot: str = "main-0", node: str = "node-1", devices: tuple[Share, ...] | None = None) -> Start:
    return Start(full(name), slot, node, whole(0) if devices is None else devices)
