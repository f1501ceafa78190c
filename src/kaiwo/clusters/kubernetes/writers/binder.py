"""Take a plan to the API server: Bindings and Evictions, and what becomes of them.

In:    a plan.   Out: writes under way; their outcomes come back through the books. A pod's volumes come first.
Never: binds a part of a gang when the whole was refused beforehand, asks twice for the same eviction, or believes a
       write that broke off: the pod is read again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import STILL_STOPPING
from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import notes_of
from kaiwo.clusters.kubernetes.client import ApiError, Client, StandbyError, UnreachableError
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod as WirePod
from kaiwo.clusters.kubernetes.writers.volume_binder import VolumeBinder
from kaiwo.clusters.ledger import Misfit, mismatch
from kaiwo.model.events import PodChanged, PodGone, WorkloadGone
from kaiwo.model.plan import Cause, Eviction, Plan, Start
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang, leaders_of

EVICTION_TRIES = 10  # about two minutes in which a disruption budget may open
SICK_TRIES = 3  # for a server that says that it is not well: so it answers to a pod that it will never evict, too
TOO_MANY_REQUESTS = 429  # a disruption budget says no
MOST_WORDS = 300
STAYS_S = 600.0  # for so long nobody counts on a pod whose Eviction was refused for good
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
AVOID_S = 60.0  # for so long a workload keeps away from a node that was refused to it twice in a row
_read_pod = msgspec.json.Decoder(WirePod).decode


class Outcome(NamedTuple):
    """A write that was carried out, for whoever tells people."""

    pod: CachedPod
    start: Start | None = None
    eviction: Eviction | None = None


class Binder:
    """Carries plans out. `settle` is called whenever the books changed."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        distillery: PodDecoder,
        now_s: Callable[[], int],
        settle: Callable[[], None],
        done: Callable[[Outcome], None] = lambda _: None,
        report: Callable[..., None] = lambda *_, **__: None,
        stayed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`stayed`: called with the workload for which somebody was to go who does not."""
        self._stayed = stayed
        self._client, self._cache, self._distillery = client, cache, distillery
        self._now_s, self._settle, self._done, self._report = now_s, settle, done, report
        self._volumes = VolumeBinder(client, cache)
        self._tasks: set[asyncio.Task[None]] = set()

    def carry(self, plan: Plan) -> tuple[str, ...]:
        """Begin everything that can be. Returns `workload/pod` of what was begun."""
        begun: list[str] = []
        for name, evictions in _by_workload(plan.evictions).items():
            begun += [f"{name}/{slot}" for slot in self._evict(name, evictions)]
        for name, starts in _by_workload(plan.starts).items():
            begun += [f"{name}/{slot}" for slot in self._start(name, starts)]
        self._settle()
        return tuple(begun)

    async def close(self) -> None:
        """Let what is under way go; the next start finds out from the API server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Starts.

    def _start(self, name: str, starts: Sequence[Start]) -> list[str]:
        cache = self._cache
        workload, placed = cache.told.workloads.get(name), cache.told.pods.get(name, {})
        if workload is None:
            for start in starts:
                cache.tell(PodGone(name, start.pod))
            cache.tell(WorkloadGone(name))
            return []
        # A pod that has a place is told again, so that whoever decided this sees it where it is.
        for start in starts:
            if start.pod in placed:
                cache.tell(PodChanged(placed[start.pod]))
        fresh = [start for start in starts if start.pod not in placed]
        if not fresh:
            return []
        pods = self._pods_to_bind(workload, fresh, placed)
        if isinstance(pods, Misfit):
            for start in fresh:
                cache.tell(PodGone(name, start.pod))
            self._refuse(name, pods)
            return []
        for start, (pod, assumed) in zip(fresh, pods, strict=True):
            cache.underway.begin_start(start, pod, assumed)
        leaders = leaders_of(workload)
        every = [(start, pod) for start, (pod, _) in zip(fresh, pods, strict=True)]
        first = [each for each in every if each[0].pod.rpartition("-")[0] in leaders]
        if first:
            self._go(self._bind_in_turn(name, first, [each for each in every if each not in first]))
        else:
            for start, pod in every:
                self._go(self._bind(start, pod))
        return [start.pod for start in fresh]

    async def _bind_in_turn(
        self, name: str, leaders: Sequence[tuple[Start, CachedPod]], others: Sequence[tuple[Start, CachedPod]]
    ) -> None:
        """Those whom the others look for come first. Where they are refused, the others wait with them."""
        await asyncio.gather(*(self._bind(start, pod) for start, pod in leaders))
        is_refused = name in self._cache.underway.refusals
        for start, pod in others:
            if is_refused:
                self._cache.underway.end_start(pod)
                self._volumes.give_up(pod)
            else:
                self._go(self._bind(start, pod))
        if is_refused:
            self._settle()

    def _pods_to_bind(
        self, workload: Workload, starts: Sequence[Start], placed: Mapping[str, Pod]
    ) -> list[tuple[CachedPod, Pod]] | Misfit:
        name = workload.name
        roles = {role.name: role for role in workload.roles}
        found: list[tuple[CachedPod, Pod]] = []
        for start in starts:
            pod, role = self._cache.find(name, start.pod), roles.get(start.pod.rpartition("-")[0])
            if pod is None or role is None:
                return Misfit("", f"it has no pod {start.pod}")
            if wrong := mismatch(role.request, start.devices):
                return Misfit("", f"pod {start.pod}: {wrong}")
            assumed = self._cache.hold(name, start.pod, pod, Phase.ASSUMED, start.node, start.devices)
            found.append((pod, replace(assumed, until_s=start.until_s)))
        return self._misfit(workload, [assumed for _, assumed in found], placed) or self._volumes.take(found) or found

    def _refuse(self, name: str, misfit: Misfit) -> None:
        if self._cache.underway.refuse(name, self._now_s(), misfit.why, misfit.node):
            self._go(self._forgive(name))

    async def _forgive(self, name: str) -> None:
        await asyncio.sleep(AVOID_S)
        self._cache.underway.forgive(name)
        self._settle()

    def _misfit(self, workload: Workload, coming: Sequence[Pod], placed: Mapping[str, Pod]) -> Misfit | None:
        if any(pod.phase is Phase.RELEASING for pod in placed.values()):
            return Misfit("", STILL_STOPPING)
        if breaks_gang(workload, [*placed, *(pod.name for pod in coming)]):
            return Misfit("", "the plan starts only a part of its pods")
        return self._cache.told.ledger.misfit(self._cache.nodes, coming)

    async def _bind(self, start: Start, pod: CachedPod) -> None:
        """One write: the node and the devices together. The UID makes sure that it is this very pod."""
        if why := await self._volumes.bind(pod, start.node):
            self._report("volume-failed", level="warning", pod=f"{pod.namespace}/{pod.name}", error=why)
            self._refuse(start.workload, Misfit(start.node, why))
            self._cache.underway.end_start(pod)
            self._settle()
            return
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": notes_of(start)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": start.node},
        }
        path = f"{_path(pod)}/binding"
        try:
            await self._client.write("POST", path, msgspec.json.encode(body))
        except (ApiError, UnreachableError) as error:
            await self._bind_failed(start, pod, error)
            return
        if start.workload in self._cache.underway.refusals:
            self._cache.underway.calm(start.workload)
            self._settle()
        self._done(Outcome(pod, start=start))

    async def _bind_failed(self, start: Start, pod: CachedPod, error: ApiError | UnreachableError) -> None:
        """It may have happened all the same: what the API server has now is what counts."""
        self._report("bind-failed", level="warning", pod=f"{pod.namespace}/{pod.name}", error=str(error)[:300])
        now = await self._read_again(pod)
        known = self._cache.pods.get(pod.key)
        if now is not None and now.node == start.node:
            self._cache.underway.calm(start.workload)
            self._done(Outcome(pod, start=start))
        elif known is not None and known.uid == pod.uid and not known.node:
            # Also when it cannot be read: who lost the right to bind has lost that to read, and must not ask for ever.
            self._cache.underway.refuse(start.workload, self._now_s(), _words(error))
        self._cache.underway.end_start(pod)
        self._settle()

    async def _read_again(self, pod: CachedPod) -> CachedPod | None:
        """The pod as it is; None: it is gone, or another one has its name."""
        while True:
            try:
                now = self._distillery.pod(_read_pod(await self._client.read(_path(pod))))
            except ApiError as error:
                if error.is_passing:
                    continue  # a server that is not well knows as little as one that is away
                if error.is_not_found:
                    self._cache.drop_pod(pod)
                return None
            except UnreachableError:
                continue  # the client has paused between its tries; until the server answers, the pod is assumed
            known = self._cache.pods.get(pod.key)
            if known is None or known.uid != pod.uid:
                return None  # a watch was faster: it is gone
            self._cache.put_pod(now)
            return now if now.uid == pod.uid else None

    # Evictions.

    def _evict(self, name: str, evictions: Sequence[Eviction]) -> list[str]:
        """These pods, or the whole workload when it cannot go on without them."""
        cache = self._cache
        workload, placed = cache.told.workloads.get(name), cache.told.pods.get(name, {})
        for eviction in evictions:
            if eviction.pod not in placed:
                cache.tell(PodGone(name, eviction.pod))
        leaving = [each.pod for each in evictions if each.pod in placed and _is_up(placed[each.pod])]
        if workload is None or not leaving:
            return []
        staying = [slot for slot, pod in placed.items() if slot not in leaving and pod.phase is not Phase.RELEASING]
        if breaks_gang(workload, staying):
            leaving = [slot for slot, pod in placed.items() if _is_up(pod)]
        begun: list[str] = []
        for slot in leaving:
            pod = cache.find(name, slot)
            if pod is not None and pod.node and pod.uid not in cache.underway.evictions:
                cache.underway.begin_eviction(name, slot, pod)
                self._go(self._ask_to_leave(evictions[0], pod))
                begun.append(slot)
        if begun and evictions[0].cause is Cause.STALE_GANG:
            cache.relapses.note(name, self._now_s())
        return begun

    async def _ask_to_leave(self, eviction: Eviction, pod: CachedPod) -> None:
        """A disruption budget may say no for a while; after that the pod stays, and the scheduler hears of it."""
        if pod.uid in self._cache.underway.staying:
            await asyncio.sleep(LONGEST_PAUSE_S)  # it must go whatever anybody says: it is asked again, not often
        pause_s, why = FIRST_PAUSE_S, ""
        for tried in range(1, EVICTION_TRIES + 1):
            try:
                await self._client.write("POST", f"{_path(pod)}/eviction", _eviction(pod), tries=1)
                self._done(Outcome(pod, eviction=eviction))
                return
            except ApiError as error:
                if error.is_not_found or error.is_conflict:
                    await self._read_again(pod)  # it is gone, or replaced by another of its name
                    self._settle()
                    return
                why = "" if isinstance(error, StandbyError) else _words(error)
                is_budget = error.code == TOO_MANY_REQUESTS
                if tried == 1 and is_budget:
                    self._report("evict-delayed", pod=f"{pod.namespace}/{pod.name}", error=why)
                if not error.is_passing or (tried >= SICK_TRIES and not is_budget):
                    break
                pause_s = max(pause_s, error.retry_after_s)
            except UnreachableError:
                why = ""
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._stays(eviction, pod, why)

    def _stays(self, eviction: Eviction, pod: CachedPod, why: str) -> None:
        """It was not evicted. `why`: the server's words, where it said no for good."""
        if why:
            whom = f"{pod.namespace}/{pod.name}"
            self._report("evict-failed", level="warning", pod=whom, beneficiary=eviction.beneficiary, error=why)
            self._go(self._let_go(pod))
        words = f"the server does not evict pod {pod.namespace}/{pod.name}: {why}" if why else ""
        self._cache.underway.end_eviction(pod, words[:MOST_WORDS])
        if eviction.beneficiary:
            self._stayed(eviction.beneficiary)
        self._settle()

    async def _let_go(self, pod: CachedPod) -> None:
        await asyncio.sleep(STAYS_S)
        self._cache.underway.let_go(pod)
        self._settle()

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report("write-broken", level="error", error=f"{type(error).__name__}: {error}")


def _eviction(pod: CachedPod) -> bytes:
    """Of this very pod."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return msgspec.json.encode(body)


def _path(pod: CachedPod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _words(error: Exception) -> str:
    """The server's own words, without the path that it was asked by."""
    return str(error).partition(": ")[2] or str(error)


def _is_up(pod: Pod) -> bool:
    return pod.phase in (Phase.ASSUMED, Phase.RUNNING)


def _by_workload(items: Iterable[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(item.workload, []).append(item)
    return groups
