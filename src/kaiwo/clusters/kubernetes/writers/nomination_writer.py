"""Write the nominations of a plan on waiting pods, and remove them again.

A nomination is an annotation, with the node also in `status.nominatedNodeName` for people and for autoscalers.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NOMINATION_ANNOTATION, write_nomination
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.writers.coalescing_writer import AT_ONCE, CoalescingWriter, Report, WriteError
from kaiwo.clusters.kubernetes.writers.pod_writes import pod_path
from kaiwo.model.events import NominationGone
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.plan import EvictionCause, Nomination, Plan
from kaiwo.model.workload import Phase, Pod, role_name


class PodNomination(NamedTuple):
    pod: CachedPod
    text: str  # of the annotation; empty: none


class NominationWriter:
    """Writes the nominations of a plan. `publish` is called whenever the cache changed."""

    def __init__(self, client: Client, cache: ClusterCache, publish: Callable[[], None], report: Report) -> None:
        self._client, self._cache, self._publish, self._report = client, cache, publish, report
        self._writer = CoalescingWriter(client, self._write, self._failed, at_once=AT_ONCE, retries=False)
        self.close = self._writer.close

    def apply(self, plan: Plan) -> None:
        nominations = {(each.workload, each.pod): each for each in plan.nominations}
        for workload, slot in plan.given_up:
            if self._cache.lost_places.give_up(workload, slot):
                self._report("place-not-kept", workload=workload, pod=slot)
                self._cache.published.assume_nomination_gone(workload, slot)
            pod = self._cache.slots.find(workload, slot)
            if (workload, slot) not in nominations and pod is not None and not pod.node:
                self._cache.published.assume_nomination_gone(workload, slot)
                self._put(pod, "")
        moves = (EvictionCause.RECOVERY, EvictionCause.DEFRAGMENT)
        moving = {(each.workload, each.pod) for each in plan.evictions if each.cause in moves}
        for (workload, slot), nomination in nominations.items():
            pod = self._cache.slots.find(workload, slot)
            if (workload, slot) in moving and pod is not None and self._cache.keep_new_place(pod, nomination):
                # From now on it is the place of a lost member, under the name of whoever replaces that one. Twice it
                # would overdraw the node, and both would be given up.
                self._cache.published.assume_nomination(nomination)
                continue
            if pod is None and self._expect_follower(nomination):
                self._cache.published.assume_nomination(nomination)
                continue
            if pod is None or pod.node:
                self._cache.queue_events([NominationGone(workload, slot)])
                continue
            self._cache.published.assume_nomination(nomination)
            self._put(pod, write_nomination(nomination))

    def _expect_follower(self, nomination: Nomination) -> bool:
        """Keep a place for a pod that is made once its leader runs. False: there is no such leader."""
        workload = self._cache.published.workloads.get(nomination.workload)
        levels = levels_of(workload) if workload is not None else None
        leader = role_name(nomination.pod)
        followers = next((each for each in levels.followers if each.leader == leader), None) if levels else None
        pod = self._cache.slots.find(nomination.workload, f"{leader}-0")
        if followers is None or pod is None:
            return False
        place = Pod(
            nomination.workload, nomination.pod, nomination.node, Phase.RUNNING, nomination.devices,
            nomination.cpu_milli, nomination.memory_mib, nomination.extended,
            beside=nomination.beside, share_with=nomination.share_with,
        )  # fmt: skip
        self._cache.lost_places.expect(nomination.workload, pod, followers.request or pod.spec.request, place)
        return True

    def release(self, workload: str) -> None:
        """The space will not be freed: drop the nominations. The scheduler learns of it from the cache."""
        for slot in list(self._cache.published.nominations.get(workload, ())):
            pod = self._cache.slots.find(workload, slot)
            if pod is not None and not pod.node:
                self._put(pod, "")
                self._cache.gang_index.touch(pod.key)

    def flush(self) -> None:
        """Remove annotations that have expired."""
        for pod in self._cache.nominations.take_expired():
            self._put(pod, "")

    def _put(self, pod: CachedPod, text: str) -> None:
        self._cache.nominations.wanted[pod.uid] = text
        if self._client.may_write:
            self._cache.nominations.being_written.add(pod.uid)
            self._writer.put(pod.uid, PodNomination(pod, text))

    async def _write(self, uid: str, nomination: PodNomination) -> None:
        """A patch of the status may change annotations too: it is one write, and needs no permission to change pods."""
        pod, text = nomination
        node = msgspec.json.decode(text)["node"] if text else None
        body = {
            "metadata": {"uid": uid, "annotations": {NOMINATION_ANNOTATION: text or None}},
            "status": {"nominatedNodeName": node},
        }
        reason = "space is kept for this pod" if text else "no space is kept for this pod any more"
        await self._client.patch(f"{pod_path(pod)}/status", msgspec.json.encode(body), reason=reason)
        if not self._writer.has_newer(uid, nomination):
            self._cache.nominations.being_written.discard(uid)
            now = self._cache.pods.get(pod.key)
            if now is not None and now.uid == uid:
                self._cache.nominations.upsert_pod(now)

    def _failed(self, uid: str, nomination: PodNomination, error: WriteError) -> None:
        pod = nomination.pod
        now = self._cache.pods.get(pod.key)
        self._writer.drop(uid)
        self._cache.nominations.being_written.discard(uid)
        self._cache.nominations.delete_pod(uid)
        if not (isinstance(error, ApiError) and error.is_replaced):
            self._report("space-not-kept", level="warning", pod=f"{pod.namespace}/{pod.name}", error=str(error))
        if now is not None and now.uid == uid and not now.node:  # what is left on a bound pod harms nobody
            self._cache.gang_index.touch(pod.key)
            self._publish()
