"""What people see in Kubernetes: Events on pods, and the condition that says why a pod is not scheduled.

In:    what was carried out, and sentences about what waits.   Out: Events and `PodScheduled` conditions.
Never: stands in the way of a Binding: it writes with a few hands of its own, says each thing once, and after a
       crash says it again rather than remembering it anywhere.
"""

import asyncio
import datetime
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.writers.pod_writes import Outcome
from kaiwo.clusters.plan_checks import eviction_sentence

HANDS = 4  # writes at once
POLITE_S, POLITE_TURNS = 0.05, 20  # a write waits so long for Bindings to pass, and so often
ONCE_MORE_S = 0.2
RIPE_S = 3.0
FINISH_LOOK_S = 0.02
MOST_WAITING = 200_000  # things to say; beyond it the oldest are dropped and counted
SAY_AGAIN_S = 300  # the same sentence about the same pod is an Event again only after so long
CANNOT = "KaiwoWaiting"  # the condition's reason when more nodes would not help
UNSCHEDULABLE = "Unschedulable"  # the reason on which cluster autoscalers act
GATED = "SchedulingGated"
COMPONENT = "kaiwo-scheduler"


class Said(NamedTuple):
    """Why a pod waits, in words."""

    sentence: str
    would_nodes_help: bool = False
    is_gated: bool = False  # somebody put a gate before it: the word of Kubernetes for that stays


class Waiting(Protocol):
    """Why a workload waits, in words."""

    @property
    def workload(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    @property
    def would_nodes_help(self) -> bool: ...


class EventWriter:
    """Says things about pods, a few at a time."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        now_s: Callable[[], int],
        report: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        self._client, self._cache, self._now_s, self._report = client, cache, now_s, report
        self._to_say: dict[tuple[str, str], tuple[Key, bytes]] = {}  # Events by UID and reason, the oldest first
        self._conditions: dict[Key, Said] = {}  # to be written
        self._written: dict[str, Said] = {}  # by UID: the condition as we wrote it
        self._last: dict[str, Said] = {}  # by UID: what is to be said now; a word that it replaced is not said again
        self._ripening: dict[Key, float] = {}  # pods that the scheduler is not told of, and when that is to be said
        self._evented_s: dict[tuple[str, str], int] = {}  # by UID and sentence
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._speaking = 0  # hands that are about to write
        self.failures = self.dropped = self.written = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work(), name="kaiwo-voice") for _ in range(HANDS)]
        self._tasks.append(asyncio.create_task(self._ripen(), name="kaiwo-voice-ripening"))

    async def finish(self, within_s: float) -> bool:
        """Until what was carried out is said, so that the next leader finds nothing unsaid: nobody else knows of it."""
        until_s = time.monotonic() + within_s
        while self._to_say or self._speaking or self._cache.in_flight.starts:
            if time.monotonic() > until_s:
                return False
            await asyncio.sleep(FINISH_LOOK_S)
        return True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def carried(self, outcome: Outcome) -> None:
        """A write was carried out."""
        pod = outcome.pod
        self._written.pop(pod.uid, None)
        self._last.pop(pod.uid, None)
        self._conditions.pop(pod.key, None)
        if outcome.start is not None:
            devices = ", ".join(share.gpu for share in outcome.start.devices)
            what = f" with {devices}" if devices else ""
            self._say(pod, "Normal", "Scheduled", f"bound to {outcome.start.node}{what}", "Binding")
        if outcome.eviction is not None:
            self._say(pod, "Warning", "Evicted", eviction_sentence(outcome.eviction), "Evicting")

    def explain(self, waiting: Iterable[Waiting]) -> None:
        """What is not named here is left as it is."""
        for each in waiting:
            said = Said(each.sentence, each.would_nodes_help)
            for pod in self._cache.pods_by_slot(each.workload).values():
                if not pod.node and pod.uid not in self._cache.in_flight.starts:
                    self._want(pod, said)

    def begin_again(self) -> None:
        """Another leader may have said other things since we spoke last."""
        self._written = {}
        self._ripen_all(self._cache.blocked_pods)

    def listen(self) -> None:
        """Pods that the scheduler was not even told of have their sentence in the books."""
        self._ripen_all(self._cache.take_newly_blocked())
        for key, sentence in self._cache.checkpoints.take_faults().items():
            if (pod := self._cache.pods.get(key)) is not None:
                self._say(pod, "Warning", "CheckpointUnreadable", sentence, "Reading")

    def _ripen_all(self, keys: Iterable[Key]) -> None:
        """A gang comes pod by pod, and is whole a moment later: what is true after a while is worth a write."""
        due_s = time.monotonic() + RIPE_S
        for key in keys:
            self._ripening.setdefault(key, due_s)

    async def _ripen(self) -> None:
        while True:
            await asyncio.sleep(RIPE_S / 6)
            now_s = time.monotonic()
            for key in [key for key, due_s in self._ripening.items() if due_s <= now_s]:
                del self._ripening[key]
                pod, sentence = self._cache.pods.get(key), self._cache.blocked_pods.get(key)
                if pod is not None and sentence:
                    self._want(pod, Said(sentence, is_gated=pod.is_gated))

    def _want(self, pod: CachedPod, said: Said) -> None:
        self._last[pod.uid] = said
        if self._written.get(pod.uid) != said and self._conditions.get(pod.key) != said:
            self._conditions[pod.key] = said
            self._wake.set()

    def _say(self, pod: CachedPod, kind: str, reason: str, message: str, action: str) -> None:
        self._to_say[pod.uid, reason] = (pod.key, _event(pod, kind, reason, message, action))
        if len(self._to_say) > MOST_WAITING:
            del self._to_say[next(iter(self._to_say))]
            self.dropped += 1
        self._wake.set()

    async def _work(self) -> None:
        """Conditions first: people and autoscalers act on them."""
        while True:
            while self._conditions or self._to_say:
                self._speaking += 1
                try:
                    await self._let_bindings_pass()
                    await self._say_next()
                finally:
                    self._speaking -= 1
            self._wake.clear()
            await self._wake.wait()

    async def _say_next(self) -> None:
        if self._conditions:
            key = next(iter(self._conditions))
            await self._write_condition(key, self._conditions.pop(key))
        elif self._to_say:
            key, body = self._to_say.pop(next(iter(self._to_say)))
            await self._try(key, "POST", f"/api/v1/namespaces/{key[0]}/events", body)

    async def _let_bindings_pass(self) -> None:
        """They go first, and what we say is not worse for coming a little later; but it must come."""
        for _ in range(POLITE_TURNS):
            if not self._cache.in_flight.starts:
                return
            await asyncio.sleep(POLITE_S)

    async def _write_condition(self, key: Key, said: Said) -> None:
        pod = self._cache.pods.get(key)
        if pod is None or pod.node or pod.is_terminating or pod.uid in self._cache.in_flight.starts:
            return
        reason = GATED if said.is_gated else UNSCHEDULABLE if said.would_nodes_help else CANNOT
        condition = {
            "type": "PodScheduled", "status": "False", "reason": reason, "message": said.sentence,
            "lastTransitionTime": _now()[:19] + "Z",
        }  # fmt: skip
        # With the version a word that comes too late, after the Binding, is refused by the server.
        metadata = {"uid": pod.uid, "resourceVersion": str(pod.version)}
        body = msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        self._written[pod.uid] = said
        error = await self._try(key, "PATCH", path, body)
        if error is not None:
            self._written.pop(pod.uid, None)
            # Our watch lags behind, or the server is not well: once more, in a moment.
            if isinstance(error, UnreachableError) or error.is_conflict or error.is_passing:
                await asyncio.sleep(ONCE_MORE_S)
                if self._last.get(pod.uid) == said:
                    self._conditions.setdefault(key, said)
            return
        now_s = self._now_s()
        if now_s - self._evented_s.get((pod.uid, reason), -SAY_AGAIN_S) >= SAY_AGAIN_S:
            self._evented_s[pod.uid, reason] = now_s
            self._say(pod, "Warning", "FailedScheduling", said.sentence, "Scheduling")
        self._tidy()

    async def _try(self, key: Key, method: str, path: str, body: bytes) -> ApiError | UnreachableError | None:
        """What went wrong, if anything. `key`: the pod of which it is said."""
        content_type = STRATEGIC if method == "PATCH" else "application/json"
        try:
            await self._client.write(method, path, body, content_type=content_type, tries=2)
        except (ApiError, UnreachableError) as error:
            # A pod that went or changed meanwhile, or goes with its namespace, is no failure.
            if isinstance(error, UnreachableError) or not (
                error.is_not_found or error.is_conflict or error.is_namespace_ending
            ):
                self._failed(key, error)
            return error
        self.written += 1
        return None

    def _failed(self, key: Key, error: Exception) -> None:
        """What could not be said is no reason to stop: it is counted, and told once in a while."""
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:
            pod, words = "/".join(key), str(error)[:300]
            self._report("voice-failed", level="warning", pod=pod, error=words, failures=self.failures)

    def _tidy(self) -> None:
        """Forget pods that are gone, now and then."""
        if len(self._written) > 2 * len(self._cache.pods) + 1000:
            living = {pod.uid for pod in self._cache.pods.values()}
            self._written = {uid: said for uid, said in self._written.items() if uid in living}
            self._last = {uid: said for uid, said in self._last.items() if uid in living}
            self._evented_s = {key: at_s for key, at_s in self._evented_s.items() if key[0] in living}


def _event(pod: CachedPod, kind: str, reason: str, message: str, action: str) -> bytes:
    now = _now()
    return msgspec.json.encode(
        {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid,
            },
            "type": kind, "reason": reason, "message": message[:1024], "action": action,
            "eventTime": now, "firstTimestamp": now[:19] + "Z", "lastTimestamp": now[:19] + "Z", "count": 1,
            "reportingComponent": COMPONENT, "reportingInstance": COMPONENT, "source": {"component": COMPONENT},
        }
    )  # fmt: skip


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
