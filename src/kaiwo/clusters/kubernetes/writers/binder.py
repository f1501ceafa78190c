"""Bind the pods that a plan starts: their volumes first, then one Binding each with node and devices.

Outcomes come back through the cache. Never binds a part of a gang when the whole was refused beforehand.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.device_grants import start_annotations
from kaiwo.clusters.kubernetes.cache.rank_annotations import rank_annotations
from kaiwo.clusters.kubernetes.client import ApiError, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import SETTLED_KEYS, CachedPod
from kaiwo.clusters.kubernetes.writers.pod_writes import AcceptedWrite, PodWrites, pod_path
from kaiwo.clusters.kubernetes.writers.volume_binder import VolumeBinder
from kaiwo.clusters.ledger import Misfit
from kaiwo.clusters.plan_checks import STILL_STOPPING, Owners, by_workload, check_devices, check_starts, find_misfit
from kaiwo.model.plan import Start
from kaiwo.model.workload import ACTIVE_PHASES, NO_RANK, Phase, Pod, Workload, leading_roles, role_name

AVOID_S = 60.0  # how long a workload avoids a node that had no room for it twice in a row


class Binder:
    def __init__(self, writes: PodWrites, now_s: Callable[[], int]) -> None:
        self._writes, self._cache, self._now_s = writes, writes.cache, now_s
        self._volumes = VolumeBinder(writes.client, writes.cache)

    def bind(self, starts: Sequence[Start]) -> list[str]:
        """Begin every start that passes the checks. Returns `workload/pod` of what was begun."""
        bound = [start for name, own in by_workload(starts).items() for start in self._bind_workload(name, own)]
        return [f"{start.workload}/{start.pod}" for start in bound]

    def _bind_workload(self, name: str, starts: Sequence[Start]) -> Sequence[Start]:
        cache = self._cache
        workload, placed = cache.published.workloads.get(name), cache.published.pods.get(name, {})
        checked = check_starts(name, workload is not None, starts, placed)
        cache.queue_events(checked.events)
        if workload is None or not checked.starts:
            return ()
        pods = self._pods_to_bind(workload, checked.starts, placed)
        if isinstance(pods, Misfit):
            cache.queue_events(cache.published.take_back(name, [start.pod for start in checked.starts]))
            self._refuse(name, pods)
            return ()
        settled = _settled_annotations(workload)
        for start, (pod, assumed) in zip(checked.starts, pods, strict=True):
            cache.published.assume_pod(assumed)
            cache.in_flight.begin_start(start, pod, settled)
        leaders = leading_roles(workload)
        hosts = self._hosts_by_rank(name, placed.values(), pods)
        every = [(_with_ranks(start, hosts), pod) for start, (pod, _) in zip(checked.starts, pods, strict=True)]
        first = [each for each in every if role_name(each[0].pod) in leaders]
        if first:
            self._writes.spawn(self._bind_in_order(name, first, [each for each in every if each not in first]))
        else:
            for start, pod in every:
                self._writes.spawn(self._bind(start, pod))
        return checked.starts

    def _hosts_by_rank(
        self, name: str, placed: Iterable[Pod], starting: Sequence[tuple[CachedPod, Pod]]
    ) -> dict[int, str]:
        """The host names of all pods of a workload that have a rank, those that start and those that run."""
        running = [pod for pod in placed if pod.rank != NO_RANK and pod.phase in ACTIVE_PHASES]
        hosts = {pod.rank: found.host for pod in running if (found := self._cache.slots.find(name, pod.name))}
        return hosts | {assumed.rank: pod.host for pod, assumed in starting if assumed.rank != NO_RANK}

    async def _bind_in_order(
        self, name: str, leaders: Sequence[tuple[Start, CachedPod]], others: Sequence[tuple[Start, CachedPod]]
    ) -> None:
        """Bind the pods that the others connect to first. If they are refused, the others wait with them."""
        await asyncio.gather(*(self._bind(start, pod) for start, pod in leaders))
        is_refused = name in self._cache.start_backoff.refusals
        for start, pod in others:
            if is_refused:
                self._cache.in_flight.end_start(pod)
                self._volumes.release(pod)
            else:
                self._writes.spawn(self._bind(start, pod))
        if is_refused:
            self._writes.publish()

    def _pods_to_bind(
        self, workload: Workload, starts: Sequence[Start], placed: Mapping[str, Pod]
    ) -> list[tuple[CachedPod, Pod]] | Misfit:
        found: list[tuple[CachedPod, Pod]] = []
        for start in starts:
            pod = self._cache.slots.find(workload.name, start.pod)
            if pod is None:
                return Misfit("", f"it has no pod {start.pod}")
            if isinstance(checked := check_devices(workload, start, self._cache.queues), Misfit):
                return checked
            assumed = self._cache.placed.at(workload.name, start.pod, pod, Phase.ASSUMED, start.node, start.devices)
            found.append((pod, replace(assumed, until_s=start.until_s, rank=start.rank)))
        if any(pod.phase is Phase.RELEASING for pod in placed.values()):
            return Misfit("", STILL_STOPPING)
        starting = [assumed for _, assumed in found]
        nodes, published = self._cache.nodes, self._cache.published
        owners = Owners(published.workloads.get, self._cache.queues)
        misfit = find_misfit(workload, starting, placed.values(), nodes, published.ledger, owners)
        return misfit or self._volumes.reserve(found) or found

    def _refuse(self, name: str, misfit: Misfit) -> None:
        if self._cache.start_backoff.refuse(name, self._now_s(), misfit.why, misfit.node):
            self._writes.spawn(self._stop_avoiding(name))

    async def _stop_avoiding(self, name: str) -> None:
        await asyncio.sleep(AVOID_S)
        self._cache.start_backoff.retry_avoided_nodes(name)
        self._writes.publish()

    async def _bind(self, start: Start, pod: CachedPod) -> None:
        """One write with the node and the devices together. Its UID rules out another pod of the same name."""
        if why := await self._volumes.bind(pod, start.node):
            self._writes.report("volume-failed", level="warning", pod=f"{pod.namespace}/{pod.name}", error=why)
            self._refuse(start.workload, Misfit(start.node, why))
            self._cache.in_flight.end_start(pod)
            self._writes.publish()
            return
        annotations = dict(start.annotations)
        annotations |= start_annotations(self._cache.grants.signatures, pod.uid, start)
        annotations |= self._cache.in_flight.settled.get(pod.uid, {})
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": start.node},
        }
        try:
            encoded, reason = msgspec.json.encode(body), f"starts {start.workload}, as planned"
            await self._writes.client.write("POST", f"{pod_path(pod)}/binding", encoded, reason=reason)
        except (ApiError, UnreachableError) as error:
            await self._bind_failed(start, pod, error)
            return
        if start.workload in self._cache.start_backoff.refusals:
            self._cache.start_backoff.clear(start.workload)
            self._writes.publish()
        self._writes.succeeded(AcceptedWrite(pod, start=start))

    async def _bind_failed(self, start: Start, pod: CachedPod, error: ApiError | UnreachableError) -> None:
        """The pod may still have been bound: what the API server has now counts."""
        self._writes.report("bind-failed", level="warning", pod=f"{pod.namespace}/{pod.name}", error=str(error)[:300])
        now = await self._writes.refetch(pod)
        known = self._cache.pods.get(pod.key)
        if now is not None and now.node == start.node:
            self._cache.start_backoff.clear(start.workload)
            self._writes.succeeded(AcceptedWrite(pod, start=start))
        elif known is not None and known.uid == pod.uid and not known.node:
            # Back off even if the pod cannot be read: without permission to bind and to read, we must not try forever.
            self._cache.start_backoff.refuse(start.workload, self._now_s(), error.message)
        self._cache.in_flight.end_start(pod)
        self._writes.publish()


def _with_ranks(start: Start, hosts: Mapping[int, str]) -> Start:
    if not hosts:
        return start
    return replace(start, annotations=(*start.annotations, *rank_annotations(start.rank, hosts).items()))


def _settled_annotations(workload: Workload) -> dict[str, str]:
    """What is settled when a pod starts: who pays, and whether it may be stopped.

    On a bound pod these annotations cannot change. Its owner can, and so can the pod until this moment: what was
    decided counts, neither what was written since nor what a pod says for which another one of its gang speaks.
    """
    return dict(zip(SETTLED_KEYS, (workload.queue, str(workload.preemptible).lower()), strict=True))
