"""Write on each node what must be remembered about its failures: how often it failed, and which workloads it failed.

The next leader reads it before its first decision, so a node that comes and goes stays out, and work does not return
to a node that failed it.
"""

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.node_cache import FAILURE_ANNOTATION
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.writers.coalescing_writer import CoalescingWriter, Report, report_failures
from kaiwo.model.plan import Plan

AT_ONCE = 4


class NodeFailureWriter:
    def __init__(self, client: Client, cache: ClusterCache, report: Report) -> None:
        self._client, self._cache = client, cache
        failed = report_failures(report, "failure-not-written", "node")
        self._writer = CoalescingWriter(client, self._write, failed, at_once=AT_ONCE, retries=False)
        self.close = self._writer.close

    def start(self) -> None:
        self._writer.start(self._review)

    def apply(self, plan: Plan) -> None:
        for bad in plan.bad_nodes:
            self._cache.queue_events(self._cache.node_cache.remember_bad(bad.node, bad.workload))

    def _review(self) -> None:
        for name, text in self._cache.node_cache.to_write().items():
            self._writer.put(name, text)

    async def _write(self, name: str, text: str) -> None:
        body = {"metadata": {"annotations": {FAILURE_ANNOTATION: text or None}}}
        await self._client.patch(
            f"/api/v1/nodes/{name}", msgspec.json.encode(body), reason="what is remembered about its failures"
        )
