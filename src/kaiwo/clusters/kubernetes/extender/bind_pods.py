"""Bind a pod of kube-scheduler's, with the devices that were chosen for it.

In:    a pod, a node, who chooses.   Out: the Binding, or one sentence why not.
Never: binds two pods of one node at once, or believes its own memory of a node: its pods are listed before devices are
       chosen, since another kube-scheduler may have led a moment ago.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta, Wire
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod as WirePod
from kaiwo.model.gpu import Share
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod

PLACE = "main-0"  # of a pod that is not ours


class Chooser(Protocol):
    """Knows the devices."""

    async def choose(self, own: str, want: Request, node: str) -> tuple[Share, ...] | str: ...

    def promise(self, pod: Pod) -> None: ...


class _Pods(Wire):
    metadata: Meta
    items: list[WirePod]


class Binder:
    """One for the process."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        chooser: Chooser,
        settle: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._chooser = client, cache, chooser
        self._settle, self._report = settle, report
        self._distillery = PodDecoder()
        self._turns: dict[str, asyncio.Lock] = {}  # by node

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Empty: it is bound."""
        try:
            async with self._turns.setdefault(node, asyncio.Lock()):
                return await self._bind(namespace, name, uid, node)
        except (ApiError, UnreachableError) as error:
            self._report("extender-bind-failed", level="warning", pod=f"{namespace}/{name}", error=str(error)[:300])
            return str(error)

    async def catch_up(self, node: str) -> None:
        """Know what is on a node now; without a name, tell what is known."""
        with contextlib.suppress(ApiError, UnreachableError):  # then what is known has to do
            if node:
                await self._list(node)
        self._settle()

    async def _bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        pod = await self._look(namespace, name, uid, node)
        if isinstance(pod, str):
            return pod
        devices: tuple[Share, ...] | str = ()
        if pod.spec.request.gpus:
            own = self._cache.names.find(pod.key) or ""
            devices = await self._chooser.choose(own, pod.spec.request, node)
        if isinstance(devices, str):
            return devices
        held = self._cache.begin_foreign_start(pod, node, devices)
        if isinstance(held, str):
            return held
        self._chooser.promise(held)
        try:
            await self._write(pod, node, devices)
        except (ApiError, UnreachableError):
            self._cache.end_foreign_start(pod)
            raise
        finally:
            self._settle()
        return ""

    async def _look(self, namespace: str, name: str, uid: str, node: str) -> CachedPod | str:
        """The pod, when it still waits; and whatever is on the node by now."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        one = self._distillery.decode(msgspec.json.decode(await self._client.read(path, tries=1), type=WirePod))
        if uid and one.uid != uid:
            return f"pod {namespace}/{name} is another one by now"
        if one.node:
            return f"pod {namespace}/{name} is bound to {one.node} already"
        if one.spec.refusal:
            return f"pod {namespace}/{name}: {one.spec.refusal}"
        if one.spec.request.gpus:
            await self._list(node)
        self._cache.upsert_pod(one)
        return one

    async def _list(self, node: str) -> None:
        """Whatever is on a node by now, and whatever has gone from it."""
        body = await self._client.read("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}, tries=1)
        listed = msgspec.json.decode(body, type=_Pods)
        there = [self._distillery.decode(item) for item in listed.items]
        keys, shown = {pod.key for pod in there}, int(listed.metadata.resource_version)
        for pod in [pod for pod in self._cache.pods.values() if pod.node == node]:
            if pod.key not in keys and pod.version <= shown:
                self._cache.delete_pod(pod)
        for pod in there:
            self._cache.upsert_pod(pod)

    async def _write(self, pod: CachedPod, node: str, devices: tuple[Share, ...]) -> None:
        notes = {"annotations": {GRANT_ANNOTATION: write_grant(devices)}} if devices else {}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, **notes},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        await self._client.write("POST", path, msgspec.json.encode(body), tries=1)
