"""Evict the pods that a plan stops, through the Eviction API, which respects disruption budgets.

All that stops for one beneficiary is a set: it is evicted as a whole or not at all. Budgets are counted for the whole
set, then every pod is tried with a dry run, and only when the server would evict all of them does the first one go.
Outcomes come back through the cache. Never begins the same eviction twice, or evicts a part of a gang that cannot run
without it, unless a failure took it away. A lost pod is deleted without its kubelet only where its node is gone or has
the taint `out-of-service`: otherwise it may still run.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.node_cache import OUT_OF_SERVICE
from kaiwo.clusters.kubernetes.client import ApiError, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.wire_objects import Node as WireNode
from kaiwo.clusters.kubernetes.writers.coalescing_writer import MAX_CHARACTERS
from kaiwo.clusters.kubernetes.writers.pod_writes import AcceptedWrite, PodWrites, pod_path
from kaiwo.clusters.plan_checks import by_workload, check_evictions, eviction_sentence, stops_only_named
from kaiwo.model.plan import Eviction, EvictionCause

EVICTION_TRIES = 10  # over about two minutes, in which a disruption budget may open
ERROR_TRIES = 3  # for a server error, which is also the answer for a pod that can never be evicted
TOO_MANY_REQUESTS = 429  # a disruption budget refuses the eviction
REFUSED_S = 600.0  # how long a pod counts as not evictable after a final refusal
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
MAX_GRACE_S = 3600  # whoever asks for more time to go would never be stopped for others
_read_node = msgspec.json.Decoder(WireNode).decode


class PodEviction(NamedTuple):
    eviction: Eviction
    pod: CachedPod


class EvictionRefusal(NamedTuple):
    why: str  # what the server said; empty: nothing that is final
    is_budget: bool = False
    is_transient: bool = False
    retry_after_s: float = 0.0


class Evictor:
    """Evicts pods. When a pod stays, `refused` is called with the workload that was to get its space."""

    def __init__(self, writes: PodWrites, now_s: Callable[[], int], refused: Callable[[str], None]) -> None:
        self._writes, self._cache, self._now_s, self._refused = writes, writes.cache, now_s, refused
        self._deleting: set[str] = set()  # UIDs of pods that are deleted without their kubelet

    def evict(self, evictions: Sequence[Eviction]) -> list[str]:
        """Begin every eviction that passes the checks. Returns `workload/pod` of what was begun."""
        begun: list[str] = []
        sets: dict[str, list[PodEviction]] = {}
        for name, own in by_workload(evictions).items():
            found = self._begin(name, own)
            begun += [f"{name}/{slot}" for slot in found]
            sets.setdefault(own[0].beneficiary or name, []).extend(found.values())
        for each in filter(None, sets.values()):
            dead = [one for one in each if self._is_dead(one)]
            for one in dead:
                self._writes.spawn(self._delete_dead(one.pod, one.eviction))
            if len(dead) < len(each):
                self._writes.spawn(self._evict_set([one for one in each if one not in dead]))
        return begun

    def delete_leaving_pods_on_fenced_nodes(self) -> None:
        """No kubelet is left to stop them. Kubernetes would delete them too, up to a minute later."""
        for pod in self._cache.leaving_pods_on_fenced_nodes():
            if pod.uid not in self._deleting:
                self._writes.spawn(self._delete_dead(pod))

    def _is_dead(self, each: PodEviction) -> bool:
        return each.eviction.cause is EvictionCause.RECOVERY and self._cache.node_cache.is_fenced(each.pod.node)

    async def _delete_dead(self, pod: CachedPod, eviction: Eviction | None = None) -> None:
        """Delete a pod without its kubelet. First the server is asked whether its node is really gone or fenced."""
        self._deleting.add(pod.uid)
        try:
            if not await self._is_fenced(pod.node):
                self._writes.report("not-fenced", level="warning", pod=f"{pod.namespace}/{pod.name}", node=pod.node)
                await self._keep_for_now(pod, FIRST_PAUSE_S)
                return
            reason = f"its node {pod.node} failed and is fenced"
            await self._writes.client.patch(
                f"{pod_path(pod)}/status", _disruption(pod, reason), STRATEGIC, reason=reason
            )
            await self._writes.client.write("DELETE", pod_path(pod), _deletion(pod), reason=reason)
            if eviction is not None:
                self._writes.succeeded(AcceptedWrite(pod, eviction=eviction))
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                await self._writes.refetch(pod)
            else:
                await self._failed_to_delete(pod, error.message, error.is_transient)
        except UnreachableError as error:
            await self._failed_to_delete(pod, str(error), is_transient=True)
        finally:
            self._deleting.discard(pod.uid)
            self._writes.publish()

    async def _failed_to_delete(self, pod: CachedPod, why: str, is_transient: bool) -> None:
        self._writes.report("delete-failed", level="warning", pod=f"{pod.namespace}/{pod.name}", error=why)
        await self._keep_for_now(pod, FIRST_PAUSE_S if is_transient else LONGEST_PAUSE_S)

    async def _keep_for_now(self, pod: CachedPod, pause_s: float) -> None:
        """The next publication or cycle tries again: without a pause, as fast as the server answers."""
        await asyncio.sleep(pause_s)
        self._cache.in_flight.end_eviction(pod)

    async def _is_fenced(self, node: str) -> bool:
        try:
            found = _read_node(await self._writes.client.read(f"/api/v1/nodes/{quote(node)}"))
        except ApiError as error:
            if error.is_not_found:
                return True
            raise
        return any(taint.key == OUT_OF_SERVICE for taint in found.spec.taints or ())

    def _begin(self, name: str, evictions: Sequence[Eviction]) -> dict[str, PodEviction]:
        cache = self._cache
        workload, placed = cache.published.workloads.get(name), cache.published.pods.get(name, {})
        pods = [each.pod for each in evictions]
        checked = check_evictions(name, workload, pods, placed, stops_only_named(evictions))
        cache.queue_events(checked.events)
        begun: dict[str, PodEviction] = {}
        for slot in checked.pods:
            pod = cache.slots.find(name, slot)
            if pod is not None and pod.node and pod.uid not in cache.in_flight.evictions:
                cache.published.assume_releasing(name, slot)
                cache.in_flight.begin_eviction(pod)
                begun[slot] = PodEviction(evictions[0], pod)
        if begun and evictions[0].cause is EvictionCause.STALE_GANG:
            cache.gang_backoff.record_stop(name, self._now_s())
        return begun

    async def _evict_set(self, evictions: Sequence[PodEviction]) -> None:
        if any(each.pod.uid in self._cache.in_flight.refused_evictions for each in evictions):
            await asyncio.sleep(LONGEST_PAUSE_S)  # one was refused for good, and still has to stop: try rarely
        if len(evictions) > 1 and (refused := await self._refusals(evictions)) is not None:
            self._writes.report("evict-set-refused", level="warning", pods=len(evictions), refused=len(refused))
            for eviction, pod in evictions:
                self._not_evicted(eviction, pod, refused.get(pod.uid, ""))
            return
        for eviction, pod in evictions:
            self._writes.spawn(self._evict(eviction, pod))

    async def _refusals(self, evictions: Sequence[PodEviction]) -> dict[str, str] | None:
        """By UID, why the server would not evict some of these; None: it would evict all of them.

        A disruption budget may open within two minutes; any other refusal is final.
        """
        over = self._cache.budgets.pods_over([each.pod for each in evictions])
        if over:
            return over
        pause_s, refused = FIRST_PAUSE_S, dict[str, str]()
        for tried in range(1, EVICTION_TRIES + 1):
            answers = await asyncio.gather(*(self._try(each.pod) for each in evictions))
            found = {each.pod.uid: answer for each, answer in zip(evictions, answers, strict=True) if answer}
            if not found:
                return None
            refused = {uid: answer.why for uid, answer in found.items() if answer.why}
            is_over = tried >= ERROR_TRIES and not all(each.is_budget or not each.why for each in found.values())
            if is_over or not all(each.is_transient for each in found.values()):
                break
            pause_s = max(pause_s, *(each.retry_after_s for each in found.values()))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return refused

    async def _try(self, pod: CachedPod) -> EvictionRefusal | None:
        """Why the server would not evict a pod now; None: it would, or the pod is gone."""
        try:
            await self._writes.client.write("POST", f"{pod_path(pod)}/eviction?dryRun=All", eviction_body(pod), tries=1)
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return None
            why = "" if isinstance(error, StandbyError) else error.message
            return EvictionRefusal(why, error.code == TOO_MANY_REQUESTS, error.is_transient, error.retry_after_s)
        except UnreachableError:
            return EvictionRefusal("", is_transient=True)
        return None

    async def _evict(self, eviction: Eviction, pod: CachedPod) -> None:
        """A disruption budget may refuse for a while; after that the pod stays, and the scheduler learns of it."""
        pause_s, why = FIRST_PAUSE_S, ""
        for tried in range(1, EVICTION_TRIES + 1):
            try:
                beneficiary = self._cache.published.workloads.get(eviction.beneficiary)
                path, reason = f"{pod_path(pod)}/eviction", eviction_sentence(eviction, beneficiary)
                await self._writes.client.write("POST", path, eviction_body(pod), tries=1, reason=reason)
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


def _disruption(pod: CachedPod, reason: str) -> bytes:
    """The condition that tells the owner of a pod, such as a Job, that the pod itself did not fail."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "NodeFailed", "message": reason}
    return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}})


def _deletion(pod: CachedPod) -> bytes:
    """At once, and with the UID: no other pod of that name is deleted."""
    return msgspec.json.encode({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}})


def eviction_body(pod: CachedPod) -> bytes:
    """With the UID: no other pod of that name is evicted."""
    options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
    if pod.asked_grace_s > MAX_GRACE_S:
        options["gracePeriodSeconds"] = MAX_GRACE_S
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    return msgspec.json.encode(body)
