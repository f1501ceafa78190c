"""Bind pods that kube-scheduler places, with the devices that Kaiwo chooses for them.

Never binds two pods to one node at once, or relies on the cache for a node: its pods are listed before devices are
chosen, since another kube-scheduler may have been the leader a moment ago.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import grant_annotations
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta, Wire
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod as WirePod
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod

FOREIGN_SLOT = "main-0"  # of a pod that kube-scheduler places


class DeviceChooser(Protocol):
    async def choose_devices(self, workload: str, request: Request, node: str) -> tuple[Share, ...] | str: ...

    def assume(self, pod: Pod) -> None: ...


class _Pods(Wire):
    metadata: Meta
    items: list[WirePod]


class ExtenderBinder:
    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        chooser: DeviceChooser,
        publish: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._chooser = client, cache, chooser
        self._publish, self._report = publish, report
        self._decoder = PodDecoder()
        self._locks: dict[str, asyncio.Lock] = {}  # by node

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind one pod. Returns the reason if it could not be bound, else an empty text."""
        try:
            async with self._locks.setdefault(node, asyncio.Lock()):
                return await self._bind(namespace, name, uid, node)
        except (ApiError, UnreachableError) as error:
            self._report("extender-bind-failed", level="warning", pod=f"{namespace}/{name}", error=str(error)[:300])
            return str(error)

    async def refresh_node(self, node: str) -> None:
        """Bring the cache up to date with a node, and publish it; without a name, only publish."""
        with contextlib.suppress(ApiError, UnreachableError):  # then the cache must suffice
            if node:
                await self._list_pods(node)
        self._publish()

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        pod = await self._read(namespace, name, uid, node)
        if isinstance(pod, str):
            return pod
        devices: tuple[Share, ...] | str = ()
        if pod.spec.request.gpus:
            workload = self._cache.names.find(pod.key) or ""
            devices = await self._chooser.choose_devices(workload, pod.spec.request, node)
        if isinstance(devices, str):
            return devices
        assumed = self._cache.begin_foreign_start(pod, node, devices)
        if isinstance(assumed, str):
            return assumed
        self._chooser.assume(assumed)
        try:
            await self._write(pod, node, devices)
        except (ApiError, UnreachableError):
            self._cache.end_foreign_start(pod)
            raise
        finally:
            self._publish()
        return ""

    async def _read(self, namespace: str, name: str, uid: str, node: str) -> CachedPod | str:
        """The pod, if it still waits, or the reason why it cannot be bound. The pods of its node are listed too."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod = self._decoder.decode(msgspec.json.decode(await self._client.read(path, tries=1), type=WirePod))
        if uid and pod.uid != uid:
            return f"pod {namespace}/{name} was replaced by another pod of that name"
        if pod.node:
            return f"pod {namespace}/{name} is already bound to {pod.node}"
        if pod.spec.refusal:
            return f"pod {namespace}/{name}: {pod.spec.refusal}"
        if pod.spec.request.gpus:
            await self._list_pods(node)
        self._cache.upsert_pod(pod)
        return pod

    async def _list_pods(self, node: str) -> None:
        body = await self._client.read("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}, tries=1)
        listed = msgspec.json.decode(body, type=_Pods)
        pods = [self._decoder.decode(item) for item in listed.items]
        keys, version = {pod.key for pod in pods}, int(listed.metadata.resource_version)
        for pod in [pod for pod in self._cache.pods.values() if pod.node == node]:
            if pod.key not in keys and pod.version <= version:
                self._cache.delete_pod(pod)
        for pod in pods:
            self._cache.upsert_pod(pod)

    async def _write(self, pod: CachedPod, node: str, devices: tuple[Share, ...]) -> None:
        annotations = grant_annotations(self._cache.grants.signatures, pod.uid, node, devices) if devices else {}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        reason = "bound for kube-scheduler, which chose the node"
        await self._client.write("POST", path, msgspec.json.encode(body), tries=1, reason=reason)
