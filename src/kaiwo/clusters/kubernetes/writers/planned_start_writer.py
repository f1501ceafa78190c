"""Write planned starts on waiting pods, and remove them again.

It is an annotation on one pod of the workload, written at most once a second: a planned start may move every cycle.
"""

from itertools import count

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.planned_start_annotations import (
    PLACE_ANNOTATION,
    START_ANNOTATION,
    format_start_time,
)
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.writers.coalescing_writer import AT_ONCE, CoalescingWriter, Report, report_failures
from kaiwo.clusters.kubernetes.writers.pod_writes import pod_path
from kaiwo.model.plan import Plan

PAUSE_S = 1.0


class PlannedStartWriter:
    """Writes the planned starts of a plan. A write that failed is tried again when the workload changes."""

    def __init__(self, client: Client, cache: ClusterCache, report: Report) -> None:
        self._client, self._cache = client, cache
        failed = report_failures(report, "promise-not-written", "workload")
        self._writer = CoalescingWriter(client, self._write, failed, at_once=AT_ONCE, pause_s=PAUSE_S, retries=False)
        self.close = self._writer.close
        self._round = count()  # each value differs, so that each is written; what to write is found at that moment

    def apply(self, plan: Plan) -> None:
        """The decisions count at once; `flush` writes them."""
        for name in plan.unpromised:
            self._cache.plan_start(name, None)
        for planned in plan.promises:
            self._cache.plan_start(planned.workload, planned)

    def flush(self) -> None:
        for name in self._cache.planned_starts.take_stale():
            self._writer.put(name, next(self._round))

    async def _write(self, workload: str, _round: int) -> None:
        """A patch of the status may change annotations too, and needs no permission to change pods."""
        for pod, text in self._cache.planned_starts.pods_to_write(workload, self._cache.slots.waiting(workload)):
            annotations = {PLACE_ANNOTATION: text or None, START_ANNOTATION: format_start_time(text)}
            body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
            reason = "its start is planned" if text else "its start is no longer planned"
            await self._client.patch(f"{pod_path(pod)}/status", msgspec.json.encode(body), reason=reason)
            self._cache.planned_starts.record_write(pod, text)
