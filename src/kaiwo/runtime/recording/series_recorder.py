"""Take a sample of everything every ten seconds of the cluster's time, and write it to series.db on a thread.

Never: stops scheduling. When the disk is low or full, samples are left out and the log says so; a damaged file is set
aside, and recording goes on in a new one.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kaiwo.clusters.local.disk_space import DEFAULT_DISK_LIMITS, why_disk_is_low
from kaiwo.history.record_file import set_aside
from kaiwo.history.series.measures import SubjectKind
from kaiwo.history.series.resolutions import RAW
from kaiwo.history.series.series_file import FILE
from kaiwo.history.series.series_reader import SeriesAnswer, SeriesQuery, SeriesReader
from kaiwo.history.series.series_writer import Frame, SeriesWriter
from kaiwo.model.errors import ClusterError, DamagedFileError
from kaiwo.runtime.log import emit, emit_limited
from kaiwo.runtime.loop.loop_metrics import CycleTimes, LoopLag
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.nodes.agent_registry import AgentRegistry
from kaiwo.runtime.overview.cluster_overview import ClusterOverview
from kaiwo.runtime.recording.cluster_samples import (
    WorkOutcomes,
    sample_cluster,
    sample_devices,
    sample_health,
    sample_nodes,
    sample_queues,
    sample_users,
)
from kaiwo.runtime.recording.exporter_readings import NO_JOB, ExporterReadings, load_exporters
from kaiwo.runtime.recording.own_samples import OwnSamples

OVERVIEW_S = 5.0
SET_ASIDE_EVERY_S = 600.0  # a bad disk does not fill itself with damaged files
LOOK_S = 1.0  # between looks at the cluster's clock, which may be a fast one


class SeriesRecorder:
    """The time series of one cluster. Lives on the event loop; the file is used on threads."""

    def __init__(
        self,
        live: LiveLoop,
        overview: ClusterOverview,
        agents: AgentRegistry,
        home: str,
        times: tuple[CycleTimes, LoopLag],
    ) -> None:
        self._live, self._overview, self._agents = live, overview, agents
        self._home, self._path = Path(home), Path(home) / FILE
        self._own = OwnSamples(live, *times)
        self._thread = ThreadPoolExecutor(1, "kaiwo-series")
        self._writer: SeriesWriter | None = None
        self._reader = SeriesReader(self._path)
        self._sampled_s = -1
        self._set_aside_at = -SET_ASIDE_EVERY_S
        self.last_frame: Frame = {}  # of this process; empty before the first sample
        self.outcomes = WorkOutcomes(live)
        self._exporters = ExporterReadings(NO_JOB)
        # Who evaluates alerts: on a full disk, too.
        self.on_frame: Callable[[int, Frame], Awaitable[None]] | None = None
        self.may_record: Callable[[], bool] = lambda: True  # False: a standby
        self.on_sample: list[Callable[[Frame, int], None]] = []  # called with each sample and its time

    async def run(self) -> None:
        """Record until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                now_s = self._live.cluster.now_s()
                if self._live.ready and self.may_record() and now_s // RAW.step_s != self._sampled_s // RAW.step_s:
                    self._sampled_s = now_s
                    await self.sample(now_s)
        finally:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown()

    def use_exporters(self, path: str) -> None:
        """Scrape the exporters of this file, from the start on. ConfigError when it is wrong."""
        if path:
            self._exporters = ExporterReadings(load_exporters(path))

    async def scrape(self) -> None:
        """Follow the exporters until cancelled; nothing where there are none."""
        await self._exporters.run()

    @property
    def has_begun(self) -> bool:
        """There is a file to read."""
        return self._path.exists()

    async def read(self, query: SeriesQuery) -> SeriesAnswer:
        return await asyncio.to_thread(self._reader.read, query)

    async def names(self, kind: SubjectKind) -> list[str]:
        return await asyncio.to_thread(self._reader.names, kind)

    async def sample(self, now_s: int) -> None:
        """Record one sample. Failures are logged, and never raised."""
        try:
            frame = self.last_frame = await self.frame()
            if self.on_frame is not None:
                await self.on_frame(now_s, frame)
            if low := why_disk_is_low(self._home, DEFAULT_DISK_LIMITS):
                raise ClusterError(f"no time series are recorded: {low}")
            for take in self.on_sample:
                take(frame, now_s)
            await asyncio.get_running_loop().run_in_executor(self._thread, self._record, now_s, frame)
        except Exception as error:  # scheduling goes on without its history: log it and try again
            emit_limited("series-failed", level="error", cause=f"{type(error).__name__}: {error}"[:300])

    async def frame(self) -> Frame:
        """A sample of everything; of the scheduler and this process alone, if the rest is not to be had in time."""
        scheduler, process = self._own.sample()
        own = {SubjectKind.SCHEDULER: scheduler, SubjectKind.PROCESS: process}
        try:
            async with asyncio.timeout(OVERVIEW_S):
                await self._overview.fresh_queues()
        except TimeoutError:
            return own
        overview, table = self._overview, self._live.state.nodes
        also = self.outcomes.sample() | sample_health(self._live.state, self._agents)
        return {
            SubjectKind.CLUSTER: sample_cluster(overview, also),
            SubjectKind.NODE: sample_nodes(table),
            SubjectKind.GPU: sample_devices(table, self._agents, self._exporters.of_nodes()),
            SubjectKind.QUEUE: sample_queues(overview),
            SubjectKind.USER: sample_users(overview.rows),
            **own,
        }

    def _record(self, now_s: int, frame: Frame) -> None:
        try:
            if self._reader.has_found_damage:
                raise DamagedFileError(f"a reader found that {self._path} is damaged")
            if self._writer is None:
                self._writer = SeriesWriter(self._path)
            self._writer.record(now_s, frame)
        except DamagedFileError as error:
            self._close()
            if time.monotonic() - self._set_aside_at < SET_ASIDE_EVERY_S:
                raise
            self._set_aside_at, self._reader.has_found_damage = time.monotonic(), False
            kept = set_aside(self._path, now_s)
            emit("series-damaged", level="error", error=str(error), kept=str(kept))

    def _close(self) -> None:
        self._reader.close()
        if self._writer is not None:
            with contextlib.suppress(ClusterError):
                self._writer.close()
        self._writer = None
