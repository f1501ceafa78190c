"""Run writes on pods in the background, for Binder and Evictor, and read a pod again after a failed write."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod as WirePod
from kaiwo.model.plan import Eviction, Start

_read_pod = msgspec.json.Decoder(WirePod).decode


class AcceptedWrite(NamedTuple):
    """A Binding or an Eviction that the server accepted."""

    pod: CachedPod
    start: Start | None = None
    eviction: Eviction | None = None


class PodWrites:
    """Runs writes on pods. `publish` is called whenever the cache changed."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        decoder: PodDecoder,
        publish: Callable[[], None],
        succeeded: Callable[[AcceptedWrite], None],
        report: Callable[..., None],
    ) -> None:
        self.client, self.cache, self.publish, self.succeeded, self.report = client, cache, publish, succeeded, report
        self._decoder = decoder
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def refetch(self, pod: CachedPod) -> CachedPod | None:
        """The pod as the server has it now; None: it is gone, or another pod has its name."""
        while True:
            try:
                now = self._decoder.decode(_read_pod(await self.client.read(pod_path(pod))))
            except ApiError as error:
                if error.is_transient:
                    continue  # a server in trouble is treated like one that does not answer
                if error.is_not_found:
                    self.cache.delete_pod(pod)
                return None
            except UnreachableError:
                continue  # the client paused between its tries; until the server answers, the pod is assumed
            known = self.cache.pods.get(pod.key)
            if known is None or known.uid != pod.uid:
                return None  # the watch was faster: it is gone
            self.cache.upsert_pod(now)
            return now if now.uid == pod.uid else None

    async def close(self) -> None:
        """Cancel the writes in flight; the next scheduler learns their outcome from the API server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report("write-broken", level="error", error=f"{type(error).__name__}: {error}")


def pod_path(pod: CachedPod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
