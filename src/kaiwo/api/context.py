"""The context that every endpoint gets (loop, overview, settings), and the wait until a write is visible."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kaiwo.api.http.request_log import LineLog
from kaiwo.api.http.streaming_response import OpenStreams
from kaiwo.api.presenters.live_pages import LivePages
from kaiwo.api.security.access import AccessControl
from kaiwo.api.settings import Settings
from kaiwo.api.views import ReservationView
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts
from kaiwo.runtime.kubernetes.leadership import SINGLE_REPLICA, Leadership
from kaiwo.runtime.loop.loop_metrics import CycleTimes, LoopLag
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.partitioning.partitioning_loop import PartitioningLoop

VISIBLE_S = 1.0


class Context:
    def __init__(self, live: LiveLoop, settings: Settings) -> None:
        self.live = live
        self.settings = settings
        self.access = AccessControl(settings)
        self.overview = ClusterOverview(live)
        self.agents = AgentRegistry(live.cluster.abilities.devices)
        self.partitions = PartitioningLoop(live, self.agents, settings.home, settings.partitions)
        self.log = LineLog(Path(settings.home) / "api.log")
        self.live_pages = LivePages(self.overview, self.report)
        self.lag = LoopLag()
        self.cycles = CycleTimes()
        self.streams = OpenStreams(settings.streams, self.report)
        self.closing = self.streams.closing  # open streams end when this is set
        self.leadership: Leadership = SINGLE_REPLICA
        self.reservations: list[ReservationView] = []  # as of the last time that metrics were read
        self.webhooks: RequestCounts | None = None  # answers of the webhooks; None: they are not served
        self.bugs = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = (self.live_pages.run(), self.lag.run(), self._watch_cycles(), self.agents.watch(), self.partitions.run())
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            self.closing.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_cycles(self) -> None:
        seen = -1
        while True:
            seen = await self.live.changed(seen)
            self.cycles.record(self.live.last_cycle)

    def report(self, error: Exception, where: str) -> None:
        self.bugs += 1
        trace = "".join(traceback.format_exception(error)[-12:])
        self.log.emit("bug", where=where, error=repr(error)[:500], trace=trace[-8000:])


async def wait_until_visible(live: LiveLoop, is_seen: Callable[[], bool]) -> None:
    """Wait, for a second at most, until the cluster's state shows a change that was just made."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(VISIBLE_S):
            while not is_seen():
                await live.changed(live.revision)
