"""Write Events on pods, and the `PodScheduled` condition that says why a pod is not scheduled.

Never delays a Binding: a few workers of its own write each Event and condition once. What was written is not stored, so
it is written again after a crash.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import ApiError, Client, UnreachableError
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key
from kaiwo.clusters.kubernetes.writers.coalescing_writer import MAX_CHARACTERS, Report, WriteError
from kaiwo.clusters.kubernetes.writers.pod_writes import AcceptedWrite, pod_path
from kaiwo.clusters.kubernetes.writers.status_writer import utc_now, utc_now_micros
from kaiwo.clusters.plan_checks import eviction_sentence

WORKERS = 4  # writes at once
YIELD_S, YIELD_TURNS = 0.05, 20  # how long, and how often, a write waits while Bindings are in flight
RETRY_S = 0.2
BLOCKED_S = 3.0  # how long a pod must be blocked before that is written
FLUSH_POLL_S = 0.02
MAX_EVENTS = 200_000  # that wait; beyond it the oldest are dropped and counted
REPEAT_S = 300  # the same kind of reason of the same pod is an Event again only after this time
SETTLE_S = 1.5  # a first reason is written if it lasts that long: most pods start before
RENEW_S = 7.0  # other numbers of the same kind of reason are written that long after the last ones
FLOOD_EVENTS, FLOOD_S = 20, 60  # Events about one kind of reason in a namespace in this time; conditions tell the rest
WAITING = "KaiwoWaiting"  # the condition's reason when more nodes would not help
UNSCHEDULABLE = "Unschedulable"  # the reason on which cluster autoscalers act
GATED = "SchedulingGated"
COMPONENT = "kaiwo-scheduler"


class WaitReason(NamedTuple):
    workload: str
    sentence: str
    would_nodes_help: bool
    kind: str = ""  # what is in its way, without the numbers; empty: the sentence itself


class GangNotice(NamedTuple):
    """A running gang lacks pods that find no place: what that means for those that run."""

    workload: str
    sentence: str


class PodReason(NamedTuple):
    """Why a pod waits, as its condition says it."""

    sentence: str
    would_nodes_help: bool = False
    is_gated: bool = False  # a scheduling gate holds it: Kubernetes' own reason for that stays
    kind: str = ""  # see WaitReason

    @property
    def is_about(self) -> str:
        return self.kind or self.sentence


class EventWriter:
    def __init__(self, client: Client, cache: ClusterCache, now_s: Callable[[], int], report: Report) -> None:
        self._client, self._cache, self._now_s, self._report = client, cache, now_s, report
        self._events: dict[tuple[str, str], tuple[Key, bytes]] = {}  # to write, by UID and reason, the oldest first
        self._conditions: dict[Key, PodReason] = {}  # to write
        self._written: dict[str, PodReason] = {}  # by UID: the condition as we wrote it
        self._wanted: dict[str, PodReason] = {}  # by UID: the newest reason; one that it replaced is not written again
        self._blocked_until_s: dict[Key, float] = {}  # blocked pods, and when that is to be written
        self._due: dict[Key, tuple[float, PodReason]] = {}  # reasons that are written later, and when
        self._written_at_s: dict[str, float] = {}  # by UID: when its condition was written
        self._event_at_s: dict[tuple[str, str], int] = {}  # by UID and kind of reason: the last Event
        self._floods: dict[tuple[str, str], tuple[int, int]] = {}  # by namespace and kind: since when, and how many
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._busy = 0  # workers that are about to write
        self.failures = self.dropped = self.written = 0

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work(), name="kaiwo-events") for _ in range(WORKERS)]
        self._tasks.append(asyncio.create_task(self._publish_blocked(), name="kaiwo-blocked-pods"))

    async def flush(self, within_s: float) -> bool:
        """Wait until the Events of all outcomes are written: the next leader cannot write them. False: not in time."""
        until_s = time.monotonic() + within_s
        while self._events or self._busy or self._cache.in_flight.starts:
            if time.monotonic() > until_s:
                return False
            await asyncio.sleep(FLUSH_POLL_S)
        return True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def publish_outcome(self, outcome: AcceptedWrite) -> None:
        pod = outcome.pod
        self._written.pop(pod.uid, None)
        self._wanted.pop(pod.uid, None)
        self._conditions.pop(pod.key, None)
        self._due.pop(pod.key, None)
        if outcome.start is not None:
            devices = ", ".join(share.gpu for share in outcome.start.devices)
            granted = f" with {devices}" if devices else ""
            self._put_event(pod, "Normal", "Scheduled", f"bound to {outcome.start.node}{granted}", "Binding")
        if outcome.eviction is not None:
            beneficiary = self._cache.published.workloads.get(outcome.eviction.beneficiary)
            sentence = eviction_sentence(outcome.eviction, beneficiary)
            self._put_event(pod, "Warning", "Evicted", sentence, "Evicting")

    def publish_reasons(self, reasons: Iterable[WaitReason]) -> None:
        """Why workloads wait. Workloads that are not named keep their reasons."""
        for each in reasons:
            reason = PodReason(each.sentence, each.would_nodes_help, kind=each.kind)
            for pod in self._cache.slots.pods(each.workload).values():
                if not pod.node and pod.uid not in self._cache.in_flight.starts:
                    self._put_reason(pod, reason)

    def publish_refusal(self, pod: CachedPod, reason: str, sentence: str) -> None:
        self._put_event(pod, "Warning", reason, sentence, "Signing")

    def publish_gangs(self, notices: Iterable[GangNotice]) -> None:
        """An Event on the first running pod of each gang, and on those of its pods that wait."""
        for each in notices:
            pods = [pod for _, pod in sorted(self._cache.slots.pods(each.workload).items())]
            running = [pod for pod in pods if pod.node and not pod.is_terminating]
            for pod in (*running[:1], *(pod for pod in pods if not pod.node)):
                self._put_event(pod, "Warning", "GangIncomplete", each.sentence, "Scheduling")

    def resync(self) -> None:
        """Forget what was written: another leader may have written other reasons since."""
        self._written = {}
        self._delay(self._cache.blocked_pods)

    def publish_changes(self) -> None:
        """Pods that became blocked, which the scheduler does not see; and unreadable annotations."""
        self._delay(self._cache.blocked_pods.take_new())
        for key, sentence in self._cache.checkpoints.take_faults().items():
            if (pod := self._cache.pods.get(key)) is not None:
                self._put_event(pod, "Warning", "CheckpointUnreadable", sentence, "Reading")
        for key, sentence in self._cache.progress.take_faults().items():
            if (pod := self._cache.pods.get(key)) is not None:
                self._put_event(pod, "Warning", "ProgressUnreadable", sentence, "Reading")

    def _delay(self, keys: Iterable[Key]) -> None:
        """Pods of a gang arrive one by one, and a moment later it is complete: only a lasting reason is written."""
        due_s = time.monotonic() + BLOCKED_S
        for key in keys:
            self._blocked_until_s.setdefault(key, due_s)

    async def _publish_blocked(self) -> None:
        while True:
            await asyncio.sleep(BLOCKED_S / 6)
            now_s = time.monotonic()
            for key in [key for key, (due_s, _) in self._due.items() if due_s <= now_s]:
                self._conditions[key] = self._due.pop(key)[1]
                self._wake.set()
            for key in [key for key, due_s in self._blocked_until_s.items() if due_s <= now_s]:
                del self._blocked_until_s[key]
                pod, sentence = self._cache.pods.get(key), self._cache.blocked_pods.get(key)
                if pod is not None and sentence:
                    self._put_reason(pod, PodReason(sentence, is_gated=pod.is_gated), after_s=0.0)

    def _put_reason(self, pod: CachedPod, reason: PodReason, after_s: float = SETTLE_S) -> None:
        """Write the reason: soon where it is of another kind, else when the numbers were written some seconds ago."""
        self._wanted[pod.uid] = reason
        written, now_s = self._written.get(pod.uid), time.monotonic()
        if written == reason:
            self._due.pop(pod.key, None)  # it is again as it was
            self._conditions.pop(pod.key, None)
        elif pod.key in self._conditions or after_s <= 0:
            self._conditions[pod.key] = reason
            self._wake.set()
        else:
            due_s = self._due[pod.key][0] if pod.key in self._due else now_s + after_s
            if written is not None and written.is_about == reason.is_about:
                due_s = max(now_s, self._written_at_s.get(pod.uid, now_s) + RENEW_S)
            self._due[pod.key] = (due_s, reason)

    def _put_event(self, pod: CachedPod, kind: str, reason: str, message: str, action: str) -> None:
        self._events[pod.uid, reason] = (pod.key, _event(pod, kind, reason, message, action))
        if len(self._events) > MAX_EVENTS:
            del self._events[next(iter(self._events))]
            self.dropped += 1
        self._wake.set()

    async def _work(self) -> None:
        while True:
            while self._conditions or self._events:
                self._busy += 1
                try:
                    await self._yield_to_bindings()
                    await self._write_next()
                finally:
                    self._busy -= 1
            self._wake.clear()
            await self._wake.wait()

    async def _write_next(self) -> None:
        """Conditions first: people and autoscalers act on them."""
        if self._conditions:
            key = next(iter(self._conditions))
            await self._write_condition(key, self._conditions.pop(key))
        elif self._events:
            key, body = self._events.pop(next(iter(self._events)))
            await self._write(key, "POST", f"/api/v1/namespaces/{key[0]}/events", body)

    async def _yield_to_bindings(self) -> None:
        for _ in range(YIELD_TURNS):
            if not self._cache.in_flight.starts:
                return
            await asyncio.sleep(YIELD_S)

    async def _write_condition(self, key: Key, wanted: PodReason) -> None:
        pod = self._cache.pods.get(key)
        if pod is None or pod.node or pod.is_terminating or pod.uid in self._cache.in_flight.starts:
            return
        reason = GATED if wanted.is_gated else UNSCHEDULABLE if wanted.would_nodes_help else WAITING
        condition = {
            "type": "PodScheduled", "status": "False", "reason": reason, "message": wanted.sentence,
            "lastTransitionTime": utc_now(),
        }  # fmt: skip
        # With the version, the server refuses a condition that arrives after the Binding.
        metadata = {"uid": pod.uid, "resourceVersion": str(pod.version)}
        body = msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]}})
        self._written[pod.uid], self._written_at_s[pod.uid] = wanted, time.monotonic()
        error = await self._write(key, "PATCH", f"{pod_path(pod)}/status", body)
        if error is not None:
            self._written.pop(pod.uid, None)
            # Our watch lags behind, or the server has trouble: try once more in a moment.
            if isinstance(error, UnreachableError) or error.is_conflict or error.is_transient:
                await asyncio.sleep(RETRY_S)
                if self._wanted.get(pod.uid) == wanted:
                    self._conditions.setdefault(key, wanted)
            return
        if self._is_worth_an_event(pod, wanted):
            self._put_event(pod, "Warning", "FailedScheduling", wanted.sentence, "Scheduling")
        self._forget_gone_pods()

    def _is_worth_an_event(self, pod: CachedPod, reason: PodReason) -> bool:
        """A reason of a new kind is, unless many pods around it have just been told of the same."""
        now_s, key, about = self._now_s(), (pod.uid, reason.is_about), (pod.namespace, reason.is_about)
        if now_s - self._event_at_s.get(key, -REPEAT_S) < REPEAT_S:
            return False
        self._event_at_s[key] = now_s
        since_s, events = self._floods.get(about, (now_s, 0))
        if now_s - since_s >= FLOOD_S:
            since_s, events = now_s, 0
        self._floods[about] = (since_s, events + 1)
        return events < FLOOD_EVENTS

    async def _write(self, key: Key, method: str, path: str, body: bytes) -> WriteError | None:
        """The error, if there was one. `key`: the pod that is written about."""
        content_type = STRATEGIC if method == "PATCH" else "application/json"
        try:
            await self._client.write(method, path, body, content_type=content_type, tries=2)
        except (ApiError, UnreachableError) as error:
            # A pod that ended or changed meanwhile, or ends with its namespace, is no failure.
            if isinstance(error, UnreachableError) or not (
                error.is_not_found or error.is_conflict or error.is_namespace_terminating
            ):
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:  # a power of two: log it once in a while
                    known = {"pod": "/".join(key), "error": str(error)[:MAX_CHARACTERS], "failures": self.failures}
                    self._report("voice-failed", level="warning", **known)
            return error
        self.written += 1
        return None

    def _forget_gone_pods(self) -> None:
        if len(self._written) > 2 * len(self._cache.pods) + 1000:
            living = {pod.uid for pod in self._cache.pods.values()}
            self._written = {uid: reason for uid, reason in self._written.items() if uid in living}
            self._wanted = {uid: reason for uid, reason in self._wanted.items() if uid in living}
            self._written_at_s = {uid: at_s for uid, at_s in self._written_at_s.items() if uid in living}
            self._event_at_s = {key: at_s for key, at_s in self._event_at_s.items() if key[0] in living}
            self._floods = {}


def _event(pod: CachedPod, kind: str, reason: str, message: str, action: str) -> bytes:
    now = utc_now_micros()
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
