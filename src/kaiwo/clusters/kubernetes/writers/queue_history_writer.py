"""Write the history of queues into the status of KaiwoQueues, for the next leader.

It is in `status.stops` and `status.usage`. Stops are written at once, since a decision may depend on them.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client, StandbyError
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import QUEUES
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, Report, WriteError, report_failures
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.snapshot.evictions.eviction_history import stops_of_plan

MANAGER = "kaiwo-memory"


class QueueHistoryWriter:
    def __init__(self, client: Client, cache: ClusterCache, now_s: Callable[[], int], report: Report) -> None:
        self._client, self._cache, self._now_s = client, cache, now_s
        self._report_failure = report_failures(report, "queue-memory-failed", "queue")
        self._writer = CoalescingWriter(client, self._write, self._failed)
        self.close = self._writer.close

    def start(self) -> None:
        """Check every second: past usage is recorded on another thread."""
        self._writer.start(self._flush)

    def apply(self, plan: Plan) -> None:
        """Record which workloads are evicted for others; the scheduler knows it already."""
        workloads = self._cache.published.workloads
        for stop in stops_of_plan(plan, self._now_s(), self._queue_path):
            if stop.workload in workloads and (stop.queues or not stop.is_moved):
                self._cache.queue_history.record_stop(workloads[stop.workload].queue, stop, workloads)
        self._flush()

    def _queue_path(self, workload: str) -> list[Queue]:
        found: dict[str, Queue] = {}
        name = self._cache.published.workloads[workload].queue if workload in self._cache.published.workloads else ""
        while (queue := self._cache.queues.get(name)) is not None and name not in found:
            found[name] = queue
            name = queue.parent
        return list(found.values())

    def _flush(self) -> None:
        if self._client.may_write:
            for name in self._cache.queue_history.take_unwritten():
                if name in self._cache.queue_cache.generations:
                    self._writer.put(name, self._cache.queue_history.status(name))

    async def _write(self, name: str, status: dict[str, Any]) -> None:
        """By server-side apply: these fields are ours, the rest of the status belongs to the queue status writer."""
        head = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": name}}
        await self._client.apply(
            f"{QUEUES}/{quote(name)}/status", msgspec.json.encode(head | {"status": status}), MANAGER
        )

    def _failed(self, name: str, status: dict[str, Any], error: WriteError) -> None:
        if isinstance(error, StandbyError):
            self._cache.queue_history.retry_write(name)  # for the next time that this replica leads
        self._report_failure(name, status, error)
