"""Write the kept places of lost gang members on one of the members that are left, and remove them again.

The next leader keeps them from there. It is one annotation for each gang that lacks pods.
"""

from itertools import count

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.lost_place_annotations import LOST_PLACES_ANNOTATION, PodText, annotation_of
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.writers.coalescing_writer import AT_ONCE, CoalescingWriter, Report, report_failures
from kaiwo.clusters.kubernetes.writers.pod_writes import pod_path

PAUSE_S = 0.2  # between two writes for one gang: whoever could write the annotation cannot make us write without end


class LostPlaceWriter:
    """Writes what `LostPlaces` wants on the pods. A write that failed is tried again: nothing else may touch a gang."""

    def __init__(self, client: Client, cache: ClusterCache, report: Report) -> None:
        self._client, self._cache = client, cache
        failed = report_failures(report, "lost-place-not-written", "workload")
        self._writer = CoalescingWriter(client, self._write, failed, at_once=AT_ONCE, pause_s=PAUSE_S)
        self.close = self._writer.close
        self._round = count()  # each value differs, so that each is written; what to write is found at that moment

    def flush(self) -> None:
        for name in self._cache.lost_places.take_stale():
            if self._to_write(name):
                self._writer.put(name, next(self._round))

    async def _write(self, workload: str, _round: int) -> None:
        """First it is written where it is wanted, then removed where it is not: a kill in between loses nothing.

        A patch of the status may change annotations too, and needs no permission to change pods.
        """
        for pod, text in sorted(self._to_write(workload), key=lambda each: not each.text):
            note = annotation_of(text, pod, self._cache.grants.signatures)
            body = {"metadata": {"uid": pod.uid, "annotations": {LOST_PLACES_ANNOTATION: note}}}
            reason = "places of lost pods are kept" if text else "no place of a lost pod is kept any more"
            try:
                await self._client.patch(f"{pod_path(pod)}/status", msgspec.json.encode(body), reason=reason)
            except ApiError as error:
                if not error.is_replaced:
                    raise
                continue  # that pod is gone: the watch will show it, and another one carries it
            self._cache.lost_places.record_write(pod, text)

    def _to_write(self, workload: str) -> list[PodText]:
        return self._cache.lost_places.pods_to_write(workload, self._cache.slots.pods(workload))
