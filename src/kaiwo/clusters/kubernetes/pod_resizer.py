"""Change what a running pod asks of its node in place, and read what running pods use.

A pod is resized through its subresource `resize`, so RBAC and the admission policies decide about it, and nothing is
stopped. Only a pod with one container is resized: of others nobody knows which container used what. Requests shrink;
limits stay, so nothing that ran before is killed now, except where the pod is Guaranteed: there they must be equal.

What pods use comes from the metrics API (metrics.k8s.io), which the metrics server serves. Without one it is unknown.
"""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.quantities import read_requested
from kaiwo.clusters.protocol import PodUse
from kaiwo.manifests.values.quantities import MIB
from kaiwo.model.errors import NotFoundError, RefusedError

METRICS = "/apis/metrics.k8s.io/v1beta1/pods"
READ_EVERY_S = 30.0  # a metrics server measures four times a minute at most
ABSENT_S = 300.0  # between two looks for a metrics server that is not there
PAGE = "500"

Json = dict[str, Any]


class _Usage(msgspec.Struct):
    usage: dict[str, str] = {}


class _Name(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _PodMetrics(msgspec.Struct):
    metadata: _Name = msgspec.field(default_factory=_Name)
    containers: list[_Usage] = []


class _Page(msgspec.Struct):
    class Metadata(msgspec.Struct):
        token: str = msgspec.field(name="continue", default="")

    items: list[_PodMetrics] = []
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class KubernetesPodUses:
    """Implements PodUses."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache
        self._next_at = 0.0

    async def measure(self) -> Mapping[tuple[str, str], PodUse]:
        if time.monotonic() < self._next_at:
            return {}
        self._next_at = time.monotonic() + READ_EVERY_S
        try:
            by_pod = await self._read()
        except (ApiError, UnreachableError):  # scheduling needs none of it
            self._next_at = time.monotonic() + ABSENT_S
            return {}
        found = {}
        for workload, unit in self._cache.slots.units.items():
            for slot, key in unit.by_slot.items():
                if key in by_pod:
                    found[workload, slot] = by_pod[key]
        return found

    async def _read(self) -> dict[tuple[str, str], PodUse]:
        found, token = {}, ""
        while True:
            params = {"limit": PAGE} | ({"continue": token} if token else {})
            page = msgspec.json.decode(await self._client.read(METRICS, params, tries=1), type=_Page)
            for pod in page.items:
                cpu = sum(read_requested("cpu", each.usage.get("cpu", "0")) for each in pod.containers)
                used = sum(read_requested("memory", each.usage.get("memory", "0")) for each in pod.containers)
                found[pod.metadata.namespace, pod.metadata.name] = PodUse(cpu, -(-used // MIB))
            token = page.metadata.token
            if not token:
                return found


class KubernetesPodResizer:
    """Implements PodResizer."""

    def __init__(self, client: Client, cache: ClusterCache) -> None:
        self._client, self._cache = client, cache

    async def resize(self, workload: str, pod: str, amounts: PodUse, why: str) -> None:
        found = self._cache.slots.find(workload, pod)
        if found is None or not found.node or found.is_finished:
            raise NotFoundError(f"workload {workload} has no pod {pod} that runs")
        path = f"/api/v1/namespaces/{found.namespace}/pods/{found.name}"
        try:
            now = msgspec.json.decode(await self._client.read(path))
            body = self._body(now, found, amounts)
            await self._client.patch(f"{path}/resize", body, STRATEGIC, reason=why)
        except ApiError as error:
            if error.is_not_found or error.is_replaced:
                raise NotFoundError(f"pod {found.namespace}/{found.name} is gone") from error
            raise RefusedError(f"pod {found.namespace}/{found.name} was not resized: {error}") from error

    def _body(self, now: Json, pod: CachedPod, amounts: PodUse) -> bytes:
        containers = now["spec"]["containers"]
        sidecars = [each for each in now["spec"].get("initContainers", []) if each.get("restartPolicy") == "Always"]
        if len(containers) != 1 or sidecars or now["spec"].get("resources"):
            raise RefusedError(f"pod {pod.namespace}/{pod.name} has several containers, or amounts of its own")
        (container,) = containers
        resources = container.get("resources", {})
        requests, limits = dict(resources.get("requests", {})), dict(resources.get("limits", {}))
        smaller = {name: text for name, text in _texts(amounts).items() if _is_smaller(name, text, requests)}
        if not smaller:
            raise RefusedError(f"pod {pod.namespace}/{pod.name} asks for no more than that already")
        changed: Json = {"requests": smaller}
        if now.get("status", {}).get("qosClass") == "Guaranteed":
            changed["limits"] = {name: text for name, text in smaller.items() if name in limits}
        version = {"uid": pod.uid, "resourceVersion": now["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": {"containers": [{"name": container["name"], "resources": changed}]}}
        return msgspec.json.encode(patch)


def _texts(amounts: PodUse) -> dict[str, str]:
    found = {}
    if amounts.cpu_milli is not None:
        found["cpu"] = f"{amounts.cpu_milli}m"
    if amounts.memory_mib is not None:
        found["memory"] = f"{amounts.memory_mib}Mi"
    return found


def _is_smaller(name: str, text: str, requests: Mapping[str, str]) -> bool:
    return name in requests and read_requested(name, text) < read_requested(name, requests[name])
