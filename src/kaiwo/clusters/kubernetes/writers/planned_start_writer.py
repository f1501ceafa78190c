"""Write planned starts on waiting pods, and take them away again.

In:    a plan.   Out: annotations on one pod of each workload with a planned start.
Never: writes one workload's more often than once a second: a planned start may move with every cycle of a busy hour.
"""

import asyncio
from collections.abc import Callable

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import PLACE_NOTE, START_NOTE, start_words
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.model.plan import Plan

PAUSE_S = 1.0


class PlannedStartWriter:
    """Carries out the part of a plan that promises."""

    def __init__(
        self, client: Client, cache: ClusterCache, report: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self._client, self._cache, self._report = client, cache, report
        self._writing: dict[str, asyncio.Task[None]] = {}  # by workload

    def carry(self, plan: Plan) -> None:
        """What was decided counts at once; it is written when the books are settled."""
        for name in plan.unpromised:
            self._cache.promise(name, None)
        for promise in plan.promises:
            self._cache.promise(promise.workload, promise)

    def tidy(self) -> None:
        """Write what the pods do not say yet."""
        for name in self._cache.planned.take_stale():
            if name not in self._writing:
                self._writing[name] = asyncio.create_task(self._write(name))

    async def close(self) -> None:
        tasks = list(self._writing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, name: str) -> None:
        try:
            await self._write_all(name)
        finally:
            del self._writing[name]

    async def _write_all(self, name: str) -> None:
        """The last word is the one that stays."""
        while due := self._cache.planned.due(name, self._cache.waiting_pods(name)):
            for pod, text in due:
                try:
                    await self._patch(pod, text)
                except (ApiError, UnreachableError) as error:
                    if not (isinstance(error, ApiError) and error.is_not_found):
                        self._report("promise-not-written", level="warning", workload=name, error=str(error)[:300])
                    return  # the next change of the workload tries again
                self._cache.planned.wrote(pod, text)
            await asyncio.sleep(PAUSE_S)

    async def _patch(self, pod: CachedPod, text: str) -> None:
        """Through the status, which takes annotations too, and needs no right to change pods."""
        notes = {PLACE_NOTE: text or None, START_NOTE: start_words(text)}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._client.patch(path, msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": notes}}))
