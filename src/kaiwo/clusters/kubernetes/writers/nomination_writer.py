"""Write on waiting pods which space a plan keeps for them, and take it away again.

In:    a plan.   Out: annotations, with the node in `status.nominatedNodeName` for people and for autoscalers.
Never: has two writes of one pod under way: the last word must be the one that stays.
"""

import asyncio
from collections.abc import Callable

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.nomination_annotations import SPACE_NOTE, write_space
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.model.events import NominationGone
from kaiwo.model.plan import Plan


class NominationWriter:
    """Carries out the part of a plan that keeps space."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        settle: Callable[[], None],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._settle, self._report = client, cache, settle, report
        self._writing: dict[str, asyncio.Task[None]] = {}  # by UID

    def carry(self, plan: Plan) -> None:
        """Begin the writes; the scheduler assumes them already."""
        fresh = {(each.workload, each.pod): each for each in plan.nominations}
        for workload, slot in plan.given_up:
            pod = self._cache.find(workload, slot)
            if (workload, slot) not in fresh and pod is not None and not pod.node:
                self._cache.told.let_go(workload, slot)
                self._want(pod, "")
        for (workload, slot), nomination in fresh.items():
            pod = self._cache.find(workload, slot)
            if pod is None or pod.node:
                self._cache.tell(NominationGone(workload, slot))
                continue
            self._cache.told.keep(nomination)
            self._want(pod, write_space(nomination))

    def give_up(self, workload: str) -> None:
        """Nobody leaves the space that was kept for it: it is planned anew. The scheduler is told by the books."""
        for slot in list(self._cache.told.kept.get(workload, ())):
            pod = self._cache.find(workload, slot)
            if pod is not None and not pod.node:
                self._want(pod, "")
                self._cache.roll.touch(pod.key)

    def tidy(self) -> None:
        """Take away what means nothing any more."""
        for pod in self._cache.spaces.take_lapsed():
            self._want(pod, "")

    async def close(self) -> None:
        tasks = list(self._writing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _want(self, pod: CachedPod, text: str) -> None:
        self._cache.spaces.wanted[pod.uid] = text
        if pod.uid not in self._writing:
            self._cache.spaces.being_written.add(pod.uid)
            task = self._writing[pod.uid] = asyncio.create_task(self._write(pod))
            task.add_done_callback(lambda _: self._wrote(pod))

    def _wrote(self, pod: CachedPod) -> None:
        self._writing.pop(pod.uid, None)
        self._cache.spaces.being_written.discard(pod.uid)
        now = self._cache.pods.get(pod.key)
        if now is not None and now.uid == pod.uid:
            self._cache.spaces.see(now)

    async def _write(self, pod: CachedPod) -> None:
        written: str | None = None
        while (text := self._cache.spaces.wanted.get(pod.uid)) is not None and text != written:
            try:
                await self._patch(pod, text)
            except (ApiError, UnreachableError) as error:
                self._report("space-not-kept", level="warning", pod=f"{pod.namespace}/{pod.name}", error=str(error))
                self._cache.spaces.forget(pod.uid)
                self._cache.roll.touch(pod.key)
                self._settle()
                return
            written = text

    async def _patch(self, pod: CachedPod, text: str) -> None:
        """Through the status, which takes annotations too: it is one write, and needs no right to change pods."""
        node = msgspec.json.decode(text)["node"] if text else None
        body = {
            "metadata": {"uid": pod.uid, "annotations": {SPACE_NOTE: text or None}},
            "status": {"nominatedNodeName": node},
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._client.patch(path, msgspec.json.encode(body))
