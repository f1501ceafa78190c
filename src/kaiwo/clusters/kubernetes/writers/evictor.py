"""Evict the pods that a plan stops, through the Eviction API, which respects disruption budgets.

Outcomes come back through the cache. Never begins the same eviction twice, or evicts a part of a gang that cannot run
without it.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.writers.coalescing_writer import MAX_CHARACTERS
from kaiwo.clusters.kubernetes.writers.pod_writes import AcceptedWrite, PodWrites, pod_path
from kaiwo.clusters.plan_checks import by_workload, check_evictions
from kaiwo.model.plan import Eviction, EvictionCause

EVICTION_TRIES = 10  # over about two minutes, in which a disruption budget may open
ERROR_TRIES = 3  # for a server error, which is also the answer for a pod that can never be evicted
TOO_MANY_REQUESTS = 429  # a disruption budget refuses the eviction
REFUSED_S = 600.0  # how long a pod counts as not evictable after a final refusal
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class Evictor:
    """Evicts pods. When a pod stays, `refused` is called with the workload that was to get its space."""

    def __init__(self, writes: PodWrites, now_s: Callable[[], int], refused: Callable[[str], None]) -> None:
        self._writes, self._cache, self._now_s, self._refused = writes, writes.cache, now_s, refused

    def evict(self, evictions: Sequence[Eviction]) -> list[str]:
        """Begin every eviction that passes the checks. Returns `workload/pod` of what was begun."""
        return [
            f"{name}/{slot}" for name, own in by_workload(evictions).items() for slot in self._evict_workload(name, own)
        ]

    def _evict_workload(self, name: str, evictions: Sequence[Eviction]) -> list[str]:
        cache = self._cache
        workload, placed = cache.published.workloads.get(name), cache.published.pods.get(name, {})
        checked = check_evictions(name, workload, [each.pod for each in evictions], placed)
        cache.queue_events(checked.events)
        begun: list[str] = []
        for slot in checked.pods:
            pod = cache.slots.find(name, slot)
            if pod is not None and pod.node and pod.uid not in cache.in_flight.evictions:
                cache.published.assume_releasing(name, slot)
                cache.in_flight.begin_eviction(pod)
                self._writes.spawn(self._evict(evictions[0], pod))
                begun.append(slot)
        if begun and evictions[0].cause is EvictionCause.STALE_GANG:
            cache.gang_backoff.record_stop(name, self._now_s())
        return begun

    async def _evict(self, eviction: Eviction, pod: CachedPod) -> None:
        """A disruption budget may refuse for a while; after that the pod stays, and the scheduler learns of it."""
        if pod.uid in self._cache.in_flight.refused_evictions:
            await asyncio.sleep(LONGEST_PAUSE_S)  # it was refused for good, and still has to stop: try rarely
        pause_s, why = FIRST_PAUSE_S, ""
        for tried in range(1, EVICTION_TRIES + 1):
            try:
                await self._writes.client.write("POST", f"{pod_path(pod)}/eviction", _eviction(pod), tries=1)
                self._writes.succeeded(AcceptedWrite(pod, eviction=eviction))
                return
            except ApiError as error:
                if error.is_not_found or error.is_conflict:
                    await self._writes.refetch(pod)  # it is gone, or another pod has its name
                    self._writes.publish()
                    return
                why = "" if isinstance(error, StandbyError) else error.message
                is_budget = error.code == TOO_MANY_REQUESTS
                if tried == 1 and is_budget:
                    self._writes.report("evict-delayed", pod=f"{pod.namespace}/{pod.name}", error=why)
                if not error.is_transient or (tried >= ERROR_TRIES and not is_budget):
                    break
                pause_s = max(pause_s, error.retry_after_s)
            except UnreachableError:
                why = ""
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._not_evicted(eviction, pod, why)

    def _not_evicted(self, eviction: Eviction, pod: CachedPod, why: str) -> None:
        """The pod stays. `why`: what the server said, if its refusal is final."""
        name = f"{pod.namespace}/{pod.name}"
        if why:
            beneficiary = eviction.beneficiary
            self._writes.report("evict-failed", level="warning", pod=name, beneficiary=beneficiary, error=why)
            self._writes.spawn(self._allow_later(pod))
        message = f"the server does not evict pod {name}: {why}" if why else ""
        self._cache.in_flight.end_eviction(pod, message[:MAX_CHARACTERS])
        if eviction.beneficiary:
            self._refused(eviction.beneficiary)
        self._writes.publish()

    async def _allow_later(self, pod: CachedPod) -> None:
        await asyncio.sleep(REFUSED_S)
        self._cache.in_flight.retry_eviction(pod)
        self._writes.publish()


def _eviction(pod: CachedPod) -> bytes:
    """With the UID: no other pod of that name is evicted."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return msgspec.json.encode(body)
