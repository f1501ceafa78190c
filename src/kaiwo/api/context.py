"""The context that every endpoint gets (loop, overview, settings), and the wait until a write is visible."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kaiwo import __version__
from kaiwo.api.http.connection_counts import ConnectionCounts
from kaiwo.api.http.request_log import LineLog
from kaiwo.api.http.streaming_response import OpenStreams
from kaiwo.api.presenters.live_pages import LivePages
from kaiwo.api.security.access import AccessControl
from kaiwo.api.security.rate_limits import QuestionTurns, RateLimit
from kaiwo.api.settings import Settings
from kaiwo.api.views.reservations import ReservationView
from kaiwo.gpus.fragments import ClusterFragments
from kaiwo.history.audit import AuditEntry, AuditLog
from kaiwo.history.audit.audit_files import FOLDER as AUDIT_FOLDER
from kaiwo.model.cluster_write import ClusterWrite
from kaiwo.model.errors import ClusterError
from kaiwo.runtime.advising.adjuster import Adjuster
from kaiwo.runtime.advising.advisor import Advisor
from kaiwo.runtime.alerting.alert_loop import AlertLoop
from kaiwo.runtime.defragmentation.defragmentation import Defragmentation
from kaiwo.runtime.edge_points.edge_points import EdgePoints
from kaiwo.runtime.forecasting.demand_tracker import DemandTracker
from kaiwo.runtime.kubernetes.leadership import SINGLE_REPLICA, Leadership
from kaiwo.runtime.loop.live_policy import LivePolicy
from kaiwo.runtime.loop.loop_metrics import CycleTimes, LoopLag
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.loop.replay_worker import ReplayWorker
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.partitioning.partitioning_loop import PartitioningLoop
from kaiwo.runtime.plugin_worker.plugin_set import PluginSet
from kaiwo.runtime.recording.measured_loads import MeasuredLoads
from kaiwo.runtime.recording.past_recorder import PastRecorder
from kaiwo.runtime.recording.series_recorder import SeriesRecorder
from kaiwo.runtime.topology.measured_ports import MeasuredPorts
from kaiwo.runtime.topology.topology_reader import TopologyReader
from kaiwo.runtime.tracing import Traces, open_traces
from kaiwo.topology.domain_use import DomainUse

if TYPE_CHECKING:  # `kaiwo up` has no webhooks
    from kaiwo.clusters.kubernetes.webhooks.process_status import WebhookStatus

VISIBLE_S = 1.0
GATHER_S = 0.05  # writes of the scheduler within this time are recorded together
SLICE = 200
SYNC_S = 1.0  # how often the audit is flushed to the disk


class Context:
    def __init__(self, live: LiveLoop, settings: Settings) -> None:
        self.live = live
        self.settings = settings
        self.access = AccessControl(settings)
        self.overview = ClusterOverview(live)
        self.agents = AgentRegistry(live.cluster.abilities.devices, now_s=live.cluster.now_s)
        self.ports = MeasuredPorts(self.agents, live)
        self.loads = MeasuredLoads(self.agents, live)
        self.partitions = PartitioningLoop(live, self.agents, settings.home, settings.partitions)
        self.topology = TopologyReader(live)
        self.defragmentation = Defragmentation(live)
        self.demand = DemandTracker(live, settings.home)
        self.demand.may_reserve = lambda: self.leadership.is_held
        self.log = LineLog(Path(settings.home) / "api.log")
        self.audit = AuditLog(
            Path(settings.home) / AUDIT_FOLDER, max_bytes=settings.audit_bytes, keep_s=settings.audit_keep_s
        )
        self.turns = QuestionTurns()
        self.replays = ReplayWorker(settings.home)
        self.refusals = RateLimit(per_s=0.2, burst=50)  # of requests of strangers, in the audit
        self.unrecorded_refusals = 0
        self.agent_nodes: set[str] = set()  # whose agents have reported since the start
        self._cluster_writes: list[ClusterWrite] = []
        self._audit_thread = ThreadPoolExecutor(1, "kaiwo-audit")
        self._is_audit_closed = False
        live.cluster.on_write = self.cluster_wrote  # which hands over at once what was written before
        self.live_pages = LivePages(self.overview, self.report)
        self.lag = LoopLag()
        self.cycles = CycleTimes()
        self.series = SeriesRecorder(live, self.overview, self.agents, settings.home, (self.cycles, self.lag))
        self.series.may_record = lambda: self.leadership.is_held
        self.past = PastRecorder(live, settings.home, settings.keep_past_s)
        self.past.rows = lambda: self.overview.rows
        self.past.may_record = lambda: self.leadership.is_held
        self.series.on_sample.append(self.past.measure)
        self.adjuster = Adjuster(live, self.agents, settings.home)
        self.adjuster.idle = lambda: self.past.meter.idle
        self.adjuster.may_act = lambda: self.leadership.is_held
        self.advisor = Advisor(live, self.adjuster)
        self.alerts = AlertLoop(live, settings.home)
        self.alerts.may_act = lambda: self.leadership.is_held
        self.alerts.notify = lambda notice: self.edge.notifications.add(notice)
        self.series.on_frame = self.alerts.look
        self.level_cycles = CycleTimes()  # those that chose domains of the network
        self.domain_use: Sequence[DomainUse] = ()  # as of the last scrape
        self.fragments: ClusterFragments | None = None  # likewise
        self.streams = OpenStreams(settings.streams, settings.streams_of_person, self.report)
        self.connections = ConnectionCounts()
        self.closing = self.streams.closing  # open streams end when this is set
        self.leadership: Leadership = SINGLE_REPLICA
        self.reservations: list[ReservationView] = []  # as of the last time that metrics were read
        # Without strangers' plugins; the program that has some puts them here.
        self.edge = EdgePoints(PluginSet(), live, settings.home)
        self.policy = LivePolicy()  # the program whose policy can be changed puts it here
        self.webhooks: WebhookStatus | None = None  # None: they are not served
        self.traces: Traces | None = None  # None: nobody wants them
        self.bugs = 0

    def use_traces(self, url: str) -> None:
        """Send traces there from the start on; empty: nowhere. ConfigError when that can't be."""
        if url:
            self.traces = open_traces(url)
            self.live.phases.on_cycle = self.traces.cycle

    @property
    def plugins(self) -> PluginSet:
        return self.edge.plugins

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = (
            self.live_pages.run(), self.lag.run(), self._watch_cycles(), self.agents.watch(), self.partitions.run(),
            self.ports.run(), self.loads.run(),
            self._sync_audit(), self.access.people.run(), self.topology.run(), self.edge.run(),
            self.demand.run(), self.series.run(), self.series.scrape(), self.past.run(), self.alerts.run(),
            self.adjuster.run(),
        )  # fmt: skip
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            self.closing.set()
            with contextlib.suppress(ClusterError):
                await self.access.people.save_uses()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.overview.forward.close()
            await self.advisor.close()
            if self.traces is not None:
                await asyncio.to_thread(self.traces.close)
            await asyncio.to_thread(self._close_audit)

    def cluster_wrote(self, write: ClusterWrite) -> None:
        """Record what the scheduler itself did. Writes of one moment go into the audit together, on a thread."""
        if not self._cluster_writes:
            asyncio.get_running_loop().call_later(GATHER_S, self._hand_over_writes)
        self._cluster_writes.append(write)

    def _hand_over_writes(self) -> None:
        writes, self._cluster_writes = self._cluster_writes, []
        if not self._is_audit_closed:
            self._audit_thread.submit(self._record_writes, writes)

    def _record_writes(self, writes: Sequence[ClusterWrite]) -> None:
        for start in range(0, len(writes), SLICE):  # in slices: a person's write may wait for one of them
            self.audit.record(*map(_audit_entry, writes[start : start + SLICE]))

    def record_start(self, **facts: str) -> None:
        """Who started Kaiwo, and with what."""
        person = self.access.owner.name
        entry = AuditEntry(action="start-kaiwo", object="kaiwo", person=person, new={"version": __version__, **facts})
        self.audit.record(entry)

    async def _sync_audit(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await asyncio.to_thread(self.audit.sync)

    def _close_audit(self) -> None:
        self._hand_over_writes()
        self._is_audit_closed = True
        self._audit_thread.shutdown()
        self.audit.close()

    async def _watch_cycles(self) -> None:
        seen = -1
        while True:
            seen = await self.live.changed(seen)
            last = self.live.last_cycle
            self.cycles.record(last)
            if last is not None and last.domains:
                self.level_cycles.record(last)

    def report(self, error: Exception, where: str) -> None:
        self.bugs += 1
        trace = "".join(traceback.format_exception(error)[-12:])
        self.log.emit("bug", where=where, error=repr(error)[:500], trace=trace[-8000:])


def _audit_entry(write: ClusterWrite) -> AuditEntry:
    return AuditEntry(
        action=write.action, object=write.object, person=write.by, credential=write.account, old=write.old,
        new=write.new, reason=write.reason, outcome=write.outcome, detail=write.detail,
    )  # fmt: skip


async def wait_until_visible(live: LiveLoop, is_seen: Callable[[], bool]) -> None:
    """Wait, for a second at most, until the cluster's state shows a change that was just made."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VISIBLE_S):
            while not is_seen():
                await live.changed(live.revision)
