"""A Kubernetes cluster behind the `Cluster` protocol.

In:    an API server, plans.   Out: events, of which the first batch is the whole state; Bindings and Evictions.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.client import Access, ApiError, Client
from kaiwo.clusters.kubernetes.client.connection import CALL_S
from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.watch.cluster_watch import ClusterWatch
from kaiwo.clusters.kubernetes.workload_records import Records
from kaiwo.clusters.kubernetes.writers.binder import Binder
from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter
from kaiwo.clusters.kubernetes.writers.evictor import Evictor
from kaiwo.clusters.kubernetes.writers.node_writer import NodeWriter
from kaiwo.clusters.kubernetes.writers.nomination_writer import NominationWriter
from kaiwo.clusters.kubernetes.writers.partitioning_plan_status_writer import PartitioningPlanStatusWriter
from kaiwo.clusters.kubernetes.writers.planned_start_writer import PlannedStartWriter
from kaiwo.clusters.kubernetes.writers.pod_writes import PodWrites
from kaiwo.clusters.kubernetes.writers.queue_history_writer import QueueHistoryWriter
from kaiwo.clusters.kubernetes.writers.queue_status_writer import QueueStatusWriter
from kaiwo.clusters.kubernetes.writers.reservation_status_writer import ReservationStatusWriter
from kaiwo.clusters.kubernetes.writers.topology_status_writer import TopologyStatusWriter
from kaiwo.clusters.ledger import in_use
from kaiwo.manifests.kinds.annotations import OURS
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import Event
from kaiwo.model.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25


class KubernetesCluster(Records):
    """One cluster, scheduled under one scheduler name."""

    kind = "kubernetes"

    def __init__(
        self,
        access: Access,
        scheduler: str = SCHEDULER,
        report: Callable[..., None] = lambda *_, **__: None,
        may_write_s: Callable[[], float] = lambda: CALL_S,
    ) -> None:
        self.name = access.name
        self.client = Client(access, may_write_s=may_write_s)
        self.cache = ClusterCache(scheduler)
        self.cache.report = report
        super().__init__(self.client, self.cache)
        distillery = PodDecoder()
        self.voice = EventWriter(self.client, self.cache, self.now_s, report)
        self.reserver = ReservationStatusWriter(self.client, self.cache, self.now_s, report)
        self.plans, self.tender = PartitioningPlanStatusWriter(self.client, report), NodeWriter(self.client, self.cache)
        self.queue_status = QueueStatusWriter(self.client, self.cache, report)
        self.topologies = TopologyStatusWriter(self.client, self.cache.node_cache, report)
        self.following = ClusterWatch(
            self.client, self.cache, distillery, self.reserver, self.plans, self.topologies, self.settle, report
        )
        self._keeper = NominationWriter(self.client, self.cache, self.settle, report)
        self._pod_writes = PodWrites(self.client, self.cache, distillery, self.settle, self.voice.carried, report)
        self._binder = Binder(self._pod_writes, self.now_s)
        self._evictor = Evictor(self._pod_writes, self.now_s, self._keeper.release)
        self._promiser = PlannedStartWriter(self.client, self.cache, report)
        self._rememberer = QueueHistoryWriter(self.client, self.cache, self.now_s, report)
        self._outbox: asyncio.Queue[tuple[Event, ...] | None] | None = None
        self._is_started = False
        self._settling: asyncio.TimerHandle | None = None
        self._pause_s = SHORTEST_PAUSE_S

    def now_s(self) -> int:
        """Wall time: the objects of the cluster carry it too."""
        return int(time.time())

    async def start(self) -> None:
        """Follow the cluster until every cache is warm; `events` does it too."""
        if not self._is_started:
            self._is_started = True
            self.following.start()
            self.voice.start()
            self.reserver.start()
            self.topologies.start()
            self._rememberer.start()
        await self.following.wait_for_sync()

    async def events(self) -> AsyncIterator[tuple[Event, ...]]:
        """The whole state as the first batch, then every change, in order, until `close`. One reader."""
        await self.start()
        outbox: asyncio.Queue[tuple[Event, ...] | None] = asyncio.Queue()
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        self._settle_now()
        outbox.put_nowait(self.cache.whole_state())
        self._outbox = outbox
        while (batch := await outbox.get()) is not None:
            yield batch
            outbox.task_done()

    async def catch_up(self) -> None:
        """Until the reader has all that another leader did: nothing may be decided on what a watch brings late."""
        await self.start()
        await self.following.relist()
        self._settle_now()
        self.voice.begin_again()
        if self._outbox is not None:
            await self._outbox.join()

    async def apply(self, plan: Plan) -> tuple[str, ...]:
        """Begin the writes. Returns the ids of what was begun (`workload/pod`) at once."""
        for writer in (self._keeper, self._promiser, self._rememberer, self.reserver):
            writer.apply(plan)
        begun = (*self._evictor.evict(plan.evictions), *self._binder.bind(plan.starts))
        self.settle()
        return begun

    async def change_devices(self, name: str, how: Callable[[Node], Node] | None) -> None:
        """Lay it over what Kubernetes says of the node."""
        self.cache.overlay_node(name, how)
        self.settle()

    @property
    def left_out(self) -> int:
        """Objects that could not be taken in, since the start."""
        return self.following.left_out + self.cache.left_out

    def devices_in_use(self, name: str) -> frozenset[str]:
        """Those that somebody holds."""
        return in_use(self.cache.published.ledger.use_of(name))

    def run_of(self, workload: str, pod: str) -> tuple[str, str]:
        """The pod's UID, and what the agent wrote on it."""
        seen = self.cache.find_pod(workload, pod)
        return ("", "") if seen is None else (seen.uid, seen.annotations.get(OURS + "gpu-grade", ""))

    async def correct_devices(self, pod: tuple[str, str], uid: str, devices: tuple[Share, ...]) -> None:
        """Write on the pod what it really has. Through the status, which takes annotations too."""
        body = {"metadata": {"uid": uid, "annotations": {GRANT_ANNOTATION: write_grant(devices)}}}
        path = f"/api/v1/namespaces/{quote(pod[0])}/pods/{quote(pod[1])}/status"
        try:
            await self.client.patch(path, msgspec.json.encode(body))
        except ApiError as error:
            if error.code in (404, 409, 422):  # it is gone, or another of that name
                raise NotFoundError(f"pod {'/'.join(pod)} is gone") from error
            raise

    async def close(self) -> None:
        """Stop watching. Running work goes on."""
        if self._settling is not None:
            self._settling.cancel()
        if self._outbox is not None:
            self._outbox.put_nowait(None)
        await self._pod_writes.close()
        writers = (
            self._keeper, self._promiser, self._rememberer, self.queue_status, self.reserver, self.plans,
            self.topologies, self.voice,
        )  # fmt: skip
        await asyncio.gather(*(writer.close() for writer in writers))
        await self.following.close()
        await self.client.close()

    def settle(self) -> None:
        """Tell what changed, in a moment: the pods of a gang come one by one, and it is worked out once for many."""
        if self._settling is None and self.following.has_synced:
            self._settling = asyncio.get_running_loop().call_later(self._pause_s, self._settle_now)

    def _settle_now(self) -> None:
        """The longer it takes, the longer the next pause, so that it never has more than a fifth of the time."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        began = time.perf_counter()
        events = self.cache.flush(self.now_s())
        if events and self._outbox is not None:
            self._outbox.put_nowait(events)
        if self.client.may_write:
            self.voice.listen()
            self._keeper.flush()
            self._promiser.flush()
        else:
            self.cache.take_newly_blocked()  # the leader says them
            self.cache.checkpoints.take_faults()
            self.cache.discard_decisions()
            self.reserver.discard_decisions()
        self._pause_s = min(max(SHORTEST_PAUSE_S, 4 * (time.perf_counter() - began)), LONGEST_PAUSE_S)
