"""Write into the status of KaiwoQueues what the next leader must know of the past.

In:    plans, and past use as it is told.   Out: `status.stops` and `status.usage`.
Never: writes for a queue that is no object of the cluster. Stops are written at once: a decision may hang on them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.writers.queue_status_writer import PATH
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.snapshot.eviction_history import stops_of_plan

MANAGER = "kaiwo-memory"
LOOK_S = 1.0


class QueueHistoryWriter:
    """Looks after the memory while this is the leader."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        now_s: Callable[[], int],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._now_s, self._report = client, cache, now_s, report
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    def start(self) -> None:
        """Begin to write what is new."""
        self._task = asyncio.create_task(self._run(), name="kaiwo-memory")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def carry(self, plan: Plan) -> None:
        """Who has to go for others; the scheduler knows it already."""
        workloads = self._cache.told.workloads
        for stop in stops_of_plan(plan, self._now_s(), self._path_of):
            if stop.workload in workloads and (stop.queues or not stop.is_moved):
                self._cache.memory.stop(workloads[stop.workload].queue, stop, workloads)
                self._stopped.set()

    def _path_of(self, workload: str) -> list[Queue]:
        """The queue of a workload and all above it, each once."""
        found: dict[str, Queue] = {}
        name = self._cache.told.workloads[workload].queue if workload in self._cache.told.workloads else ""
        while (queue := self._cache.queues.get(name)) is not None and name not in found:
            found[name] = queue
            name = queue.parent
        return list(found.values())

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):  # past use is told on another thread
                    await self._stopped.wait()
            self._stopped.clear()
            if self._client.may_write:
                for name in self._cache.memory.take_fresh():
                    if name in self._cache.queue_generations:
                        await self._write(name)

    async def _write(self, name: str) -> None:
        """By server-side apply: these fields are ours, the rest of the status belongs to whoever shows the queue."""
        body = {
            "apiVersion": "kaiwo.ai/v1alpha2",
            "kind": "KaiwoQueue",
            "metadata": {"name": name},
            "status": self._cache.memory.words(name),
        }
        try:
            await self._client.apply(f"{PATH}/{quote(name)}/status", msgspec.json.encode(body), MANAGER)
        except (ApiError, UnreachableError) as error:
            if not (isinstance(error, ApiError) and error.is_not_found):
                self._cache.memory.put_back(name)
                self._report("queue-memory-failed", level="warning", queue=name, error=str(error)[:300])
