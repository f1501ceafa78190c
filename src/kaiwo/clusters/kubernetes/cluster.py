"""A Kubernetes cluster behind the `Cluster` protocol.

In:    an API server, plans.   Out: events, of which the first batch is the whole state; Bindings and Evictions; and the
       records of workloads that the API shows.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache, move_times
from kaiwo.clusters.kubernetes.cache.device_grants import grant_annotations
from kaiwo.clusters.kubernetes.cache.foreign_bindings import eviction_of
from kaiwo.clusters.kubernetes.cache.workload_unit import BlockedWorkload
from kaiwo.clusters.kubernetes.client import ApiError, Client, ClusterAccess
from kaiwo.clusters.kubernetes.client.connection import CALL_S
from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.moves import KubernetesMoves
from kaiwo.clusters.kubernetes.pod_resizer import KubernetesPodResizer, KubernetesPodUses
from kaiwo.clusters.kubernetes.user_actions import KubernetesNodes, KubernetesWork
from kaiwo.clusters.kubernetes.wall_time import FollowedClock, WallTime
from kaiwo.clusters.kubernetes.watch.cluster_watch import WRITTEN_BY_LEADER, ClusterWatch
from kaiwo.clusters.kubernetes.watch.node_leases import NodeLeases
from kaiwo.clusters.kubernetes.writers.binder import Binder
from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter
from kaiwo.clusters.kubernetes.writers.evictor import Evictor
from kaiwo.clusters.kubernetes.writers.lost_place_writer import LostPlaceWriter
from kaiwo.clusters.kubernetes.writers.node_failure_writer import NodeFailureWriter
from kaiwo.clusters.kubernetes.writers.node_writer import NodeWriter
from kaiwo.clusters.kubernetes.writers.nomination_writer import NominationWriter
from kaiwo.clusters.kubernetes.writers.partitioning_plan_status_writer import PartitioningPlanStatusWriter
from kaiwo.clusters.kubernetes.writers.planned_start_writer import PlannedStartWriter
from kaiwo.clusters.kubernetes.writers.pod_writes import PodWrites
from kaiwo.clusters.kubernetes.writers.queue_history_writer import QueueHistoryWriter
from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatusWriter
from kaiwo.clusters.kubernetes.writers.reservation_status_writer import ReservationStatusWriter
from kaiwo.clusters.kubernetes.writers.topology_status_writer import TopologyStatusWriter
from kaiwo.clusters.ledger import devices_in_use
from kaiwo.clusters.plan_checks import follow_renamed_pods
from kaiwo.clusters.protocol import Abilities, Cluster, PodRun, RecordChanges
from kaiwo.manifests.kinds.annotations import OUR_PREFIX
from kaiwo.model.cluster_write import ClusterWrite
from kaiwo.model.errors import NotFoundError, RefusedError
from kaiwo.model.events import ClockMoved, Event, NominationGone, PodChanged, PodGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import CountedAmounts, Node
from kaiwo.model.plan import EvictionCause, Plan
from kaiwo.model.workload import Phase, Pod, Workload, breaks_gang
from kaiwo.model.workload_record import Program, WorkloadRecord, WorkloadState

NO_PROGRAM = Program()  # Kaiwo does not read the commands of pods
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25


class Records:
    """Records of the workloads of the cache, for the API and the page."""

    def __init__(self, cache: ClusterCache) -> None:
        self._published = cache.published
        self._workload_of = cache.workload_of

    def record(self, name: str) -> WorkloadRecord:
        """One workload that has not ended, by its name or by that of one of its pods."""
        namespace, _, pod = name.partition("/")
        found = self._find(name) or self._find(self._workload_of((namespace, pod)) or "")
        if found is None:
            raise NotFoundError(f"no workload '{name}' is waiting or running; kaiwo get workloads lists them")
        return found

    def records(self) -> Sequence[WorkloadRecord]:
        """Every workload that has not ended, including blocked ones, which the scheduler does not know."""
        workloads, blocked = self._published.workloads.values(), self._published.blocked.values()
        return [*map(self._record, workloads), *map(_held_record, blocked)]

    def records_since(self, version: int) -> RecordChanges:
        """The workloads that changed after this version; -1: all of them."""
        latest = self._published.version
        names = self._published.recent.since(version) if version >= 0 else None
        if names is None:
            return RecordChanges(latest, self.records(), (), is_all=True)
        found = {name: self._find(name) for name in names}
        living = [record for record in found.values() if record is not None]
        return RecordChanges(latest, living, [name for name, record in found.items() if record is None])

    def _find(self, name: str) -> WorkloadRecord | None:
        workload, blocked = self._published.workloads.get(name), self._published.blocked.get(name)
        if workload is not None:
            return self._record(workload)
        return _held_record(blocked) if blocked is not None else None

    def _record(self, workload: Workload) -> WorkloadRecord:
        pods = self._published.pods.get(workload.name, {}).values()
        started_s = min((pod.since_s for pod in pods), default=0)
        state = _state(workload, pods)
        return WorkloadRecord(workload, NO_PROGRAM, state, attempt=min(len(pods), 1), started_s=started_s)


class KubernetesCluster(Records):
    """One cluster, scheduled under one scheduler name.

    `is_guarded`: the admission policies of the chart are installed. Without them the status of a pod is checked, and a
    pod that somebody else bound is evicted.
    """

    kind = "kubernetes"
    is_virtual = False
    lists_devices = True

    def __init__(
        self,
        access: ClusterAccess,
        scheduler: str = SCHEDULER,
        report: Callable[..., None] = lambda *_, **__: None,
        may_write_s: Callable[[], float] = lambda: CALL_S,
        is_guarded: bool = True,
    ) -> None:
        self.name, self._time = access.name, WallTime()
        client = self.client = Client(access, may_write_s=may_write_s)
        cache = self.cache = ClusterCache(scheduler)
        cache.report, cache.node_cache.now_s = report, self.now_s
        self._report = report
        super().__init__(cache)
        self.moves = KubernetesMoves(client, f"{scheduler}-moves", self.now_s, self._publish_events, report)
        self.abilities = Abilities(
            KubernetesWork(client, cache, self.now_s),
            KubernetesNodes(client),
            self,
            moves=self.moves,
            uses=KubernetesPodUses(client, cache),
            resizer=KubernetesPodResizer(client, cache),
            wall_clock=FollowedClock(self._time, self._move_times),
        )
        decoder = PodDecoder(is_guarded)
        cache.claimed_ends.is_guarded = cache.foreign_bindings.is_guarded = is_guarded
        self.event_writer = EventWriter(client, cache, self.now_s, report)
        self.node_writer = NodeWriter(client, cache)
        self.queue_status = QueueStatusWriter(client, cache, report)
        self.partitioning_plans = PartitioningPlanStatusWriter(client, report)
        self._reservations = ReservationStatusWriter(client, cache, self.now_s, report)
        self._topologies = TopologyStatusWriter(client, cache, report)
        self._nominations = NominationWriter(client, cache, self.publish_soon, report)
        self._lost_places = LostPlaceWriter(client, cache, report)
        self._planned_starts = PlannedStartWriter(client, cache, report)
        self._queue_history = QueueHistoryWriter(client, cache, self.now_s, report)
        self._pod_writes = PodWrites(
            client, cache, decoder, self.publish_soon, self.event_writer.publish_outcome, report
        )
        self._binder = Binder(self._pod_writes, self.now_s)
        self._evictor = Evictor(self._pod_writes, self.now_s, self._nominations.release)
        self.watch = ClusterWatch(
            client, cache, decoder, self._reservations, self.partitioning_plans, self._topologies, self.publish_soon,
            report,
        )  # fmt: skip
        self._node_failures = NodeFailureWriter(client, cache, report)
        self._leases = NodeLeases(client, self._silent_nodes_changed, report)
        self._early_writes = deque[ClusterWrite](maxlen=10_000)  # before anybody listens
        client.on_write = self._early_writes.append
        self._outbox: asyncio.Queue[tuple[Event, ...] | None] | None = None
        self._is_started = False
        self._publish_timer: asyncio.TimerHandle | None = None
        self._settle_timer: asyncio.TimerHandle | None = None
        self._pause_s = SHORTEST_PAUSE_S

    @property
    def on_write(self) -> Callable[[ClusterWrite], None]:
        """Called with everything that is written to the API server."""
        return self.client.on_write

    @on_write.setter
    def on_write(self, listener: Callable[[ClusterWrite], None]) -> None:
        self.client.on_write = listener
        while self._early_writes:
            listener(self._early_writes.popleft())

    def now_s(self) -> int:
        """Wall time, as in the timestamps of the cluster's objects."""
        return self._time.now_s()

    async def start(self) -> None:
        """Watch the cluster, and wait until the cache has synced; `events` calls this too."""
        if not self._is_started:
            self._is_started = True
            for part in (
                self.watch, self.event_writer, self._reservations, self._topologies, self._queue_history,
                self._node_failures, self._leases,
            ):  # fmt: skip
                part.start()
        await self.watch.wait_for_sync()

    async def events(self) -> AsyncIterator[tuple[Event, ...]]:
        """The whole state as the first batch, then every change, in order, until `close`. One reader."""
        await self.start()
        outbox: asyncio.Queue[tuple[Event, ...] | None] = asyncio.Queue()
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        self._publish_now()
        await self.moves.load()
        outbox.put_nowait((*self.cache.whole_state(), *self.moves.events()))
        self._outbox = outbox
        while (batch := await outbox.get()) is not None:
            yield batch
            outbox.task_done()

    async def catch_up(self) -> None:
        """Wait until the reader knows everything that another leader did: a watch may lag behind."""
        await self.start()
        self.cache.foreign_bindings.stop()  # what another leader bound is no stranger's work
        await self.watch.relist(WRITTEN_BY_LEADER)
        await self.moves.load()
        self.cache.queue_events(self.moves.events())
        self._publish_now()
        self.event_writer.resync()
        if self._outbox is not None:
            await self._outbox.join()

    async def lead(self) -> None:
        """From now on nobody else binds the pods of our scheduler."""
        await self.start()
        self.cache.foreign_bindings.start()

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        """Begin the writes. Returns the ids of what was begun (`workload/pod`) at once."""
        self.cache.lost_places.is_leading = True
        if not await self.moves.apply(plan):
            plan = self._without_moves(plan)
        plan, events = follow_renamed_pods(plan, self.cache.published.pods)
        self.cache.queue_events(events)
        for writer in (
            self._nominations, self._planned_starts, self._queue_history, self._reservations, self._node_failures,
        ):  # fmt: skip
            writer.apply(plan)
        self._lost_places.flush()
        begun = (*self._evictor.evict(plan.evictions), *self._binder.bind(plan.starts))
        self.publish_soon()
        return begun

    async def change_devices(self, name: str, change: Callable[[Node], Node] | None) -> None:
        """Apply this change on top of the node as Kubernetes has it."""
        self.cache.overlay_node(name, change)
        self.publish_soon()

    async def set_counted(self, amounts: CountedAmounts) -> None:
        self.cache.published.ledger.counted = amounts

    async def set_holders(self, node: str, holders: Mapping[str, tuple[Share, ...]] | None) -> None:
        self.cache.set_holders(node, holders)
        self.publish_soon()

    @property
    def left_out(self) -> int:
        """How many objects could not be read since the start."""
        return self.watch.left_out + self.cache.left_out

    @property
    def failed_pods(self) -> int:
        return self.cache.failed_pods

    def devices_in_use(self, name: str) -> frozenset[str]:
        return devices_in_use(self.cache.published.ledger.usage_of(name))

    def run_of(self, workload: str, pod: str) -> PodRun:
        """The pod's UID, and the grade that the agent wrote on the pod."""
        found = self.cache.slots.find(workload, pod)
        return PodRun() if found is None else PodRun(found.uid, found.annotations.get(OUR_PREFIX + "gpu-grade", ""))

    async def correct_devices(self, node: str, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        """Write on the pod which devices it really has. A patch of the status may change annotations too."""
        known = self.cache.pods.get(pod)
        if known is not None and known.uid == uid and known.node != node:
            raise RefusedError(f"pod {'/'.join(pod)} is not on {node}, so the agent there cannot say what it has")
        annotations = grant_annotations(self.cache.grants.signatures, uid, node, devices)
        body = {"metadata": {"uid": uid, "annotations": annotations}}
        path = f"/api/v1/namespaces/{quote(pod[0])}/pods/{quote(pod[1])}/status"
        try:
            reason = f"the agent on {node} says that it runs on other devices"
            await self.client.patch(path, msgspec.json.encode(body), reason=reason)
        except ApiError as error:
            if error.is_replaced:
                raise NotFoundError(f"pod {'/'.join(pod)} is gone") from error
            raise

    async def close(self) -> None:
        """Stop watching. Running workloads continue."""
        for timer in filter(None, (self._publish_timer, self._settle_timer)):
            timer.cancel()
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        await self._pod_writes.close()
        writers = (
            self._nominations, self._lost_places, self._planned_starts, self._queue_history, self.queue_status,
            self._reservations, self.partitioning_plans, self._topologies, self.event_writer, self._node_failures,
            self._leases,
        )  # fmt: skip
        await asyncio.gather(*(writer.close() for writer in writers))
        await self.watch.close()
        await self.client.close()

    def _without_moves(self, plan: Plan) -> Plan:
        """The scheduler learns that what it wanted to move stays where it is."""
        staying = {(each.workload, each.pod) for each in plan.evictions if each.cause is EvictionCause.DEFRAGMENT}
        events: list[Event] = []
        for workload, pod in sorted(staying):
            events.append(NominationGone(workload, pod))
            now = self.cache.published.pods.get(workload, {}).get(pod)
            events.append(PodGone(workload, pod) if now is None else PodChanged(now))
        self._publish_events(events)
        kept = tuple(each for each in plan.nominations if (each.workload, each.pod) not in staying)
        evictions = tuple(each for each in plan.evictions if each.cause is not EvictionCause.DEFRAGMENT)
        return replace(plan, evictions=evictions, nominations=kept)

    def _publish_events(self, events: Sequence[Event]) -> None:
        self.cache.queue_events(events)
        self.publish_soon()

    def _move_times(self, by_s: int) -> None:
        """The cluster's objects keep their times: only those of this process move."""
        move_times(self.cache, by_s)
        self._publish_now()
        if self._outbox is not None:
            self._outbox.put_nowait((ClockMoved(by_s),))
        self._report("clock-moved", level="warning", by_s=by_s)

    def _silent_nodes_changed(self, names: Collection[str]) -> None:
        self.cache.queue_events(self.cache.node_cache.set_silent(names))
        self.publish_soon()

    def publish_soon(self) -> None:
        """Publish what changed, after a short pause: the pods of a gang arrive one by one, and share a batch."""
        if self._publish_timer is None and self.watch.has_synced:
            self._publish_timer = asyncio.get_running_loop().call_later(self._pause_s, self._publish_now)

    def _publish_settled(self) -> None:
        self._settle_timer = None
        self._publish_now()

    def _publish_now(self) -> None:
        """The longer this takes, the longer the next pause, so that it takes at most a fifth of the time."""
        if self._publish_timer is not None:
            self._publish_timer.cancel()
            self._publish_timer = None
        began = time.perf_counter()
        events = self.cache.flush(self.now_s())
        if events and self._outbox is not None:
            self._outbox.put_nowait(events)
        if self.client.may_write:
            self.event_writer.publish_changes()
            self._evictor.evict([eviction_of(*found) for found in self.cache.foreign_binding_slots()])
            self._nominations.flush()
            self._lost_places.flush()
            self._planned_starts.flush()
            self._evictor.delete_leaving_pods_on_fenced_nodes()
        else:
            self.cache.blocked_pods.take_new()  # the leader writes them
            self.cache.checkpoints.take_faults()
            self.cache.discard_decisions()
            self._reservations.discard_decisions()
        if (due_s := self.cache.claimed_ends.next_due_s) and self._settle_timer is None:
            wait_s = max(1, due_s - self.now_s())
            self._settle_timer = asyncio.get_running_loop().call_later(wait_s, self._publish_settled)
        self._pause_s = min(max(SHORTEST_PAUSE_S, 4 * (time.perf_counter() - began)), LONGEST_PAUSE_S)


def _held_record(blocked: BlockedWorkload) -> WorkloadRecord:
    return WorkloadRecord(blocked.workload, NO_PROGRAM, WorkloadState.HELD, message=blocked.reason)


def _state(workload: Workload, pods: Collection[Pod]) -> WorkloadState:
    if not pods:
        return WorkloadState.WAITING
    if all(pod.phase is Phase.RELEASING for pod in pods):
        return WorkloadState.STOPPING
    up = [pod.name for pod in pods if pod.phase is Phase.RUNNING]
    return WorkloadState.STARTING if breaks_gang(workload, up) or not up else WorkloadState.RUNNING


if TYPE_CHECKING:
    _: type[Cluster] = KubernetesCluster
