"""Give a sample of the cluster to sinks and metrics now and then, and write down or keep what they make of it.

In:    the cluster state, every few seconds.   Out: lines in KAIWO_HOME/sinks/NAME.log, of which one older file is kept;
       numbers for `/metrics`.
Never: lets a sink write by itself. It only forms text, so it needs no rights, and a slow one delays no decision.
"""

import asyncio
import math
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kaiwo.plugins.edge_contract import Metric, MonitoringSample, QueueSample
from kaiwo.runtime.edge_points.edge_calls import EdgeCalls
from kaiwo.runtime.log import emit
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.queue_table import GPU, INFINITE

T = TypeVar("T")
FOLDER = "sinks"
EVERY_S = 10.0
MAX_BYTES = 16 << 20  # of one file
MAX_TEXT = 1 << 20  # of one answer
MAX_METRICS, MAX_SUBJECT = 1_000, 200
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,62}")


class SampledLoop(Protocol):
    """The part of the scheduling loop that sinks need."""

    ready: bool

    def ask(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...

    def clock(self) -> tuple[int, int]:
        """The cluster's time, and the number of the last cycle."""


def sample_of(state: ClusterState, at_s: int, cycle: int) -> MonitoringSample:
    state.refresh_tables()
    nodes, queues = state.nodes, state.queues
    total, free = int(nodes.gpu_total.sum()), int(nodes.free[:, FREE_GPU].sum())
    by_queue = tuple(
        QueueSample(name, int(queues.used[row, GPU]), _finite(int(queues.quota[row, GPU])))
        for row, name in enumerate(queues.names)
    )
    ready = int(nodes.schedulable.sum())
    return MonitoringSample(at_s, cycle, len(nodes.names), ready, total, total - free, len(state.backlog),
                            len(state.pods), by_queue)  # fmt: skip


def _finite(amount: int) -> int:
    return -1 if amount < 0 or amount >= INFINITE else amount


class ReportFiles:
    """One file for the text of each sink or notification. A file that is full becomes NAME.log.1."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def append(self, name: str, text: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{name}.log"
        data = text.encode("utf-8", "replace")
        if path.exists() and path.stat().st_size + len(data) > MAX_BYTES:
            os.replace(path, path.with_suffix(".log.1"))
        with path.open("ab") as file:
            file.write(data)

    async def append_or_report(self, name: str, text: str) -> None:
        """On another thread, with a line's end; a disk that is full is no fault of the plugin."""
        try:
            await asyncio.to_thread(self.append, name, text if text.endswith("\n") else text + "\n")
        except OSError as error:
            emit("sink-not-written", level="error", plugin=name, error=str(error))


class Monitoring:
    """Samples for `sink` and `metrics`."""

    def __init__(self, calls: EdgeCalls, live: SampledLoop, home: Path) -> None:
        self._calls, self._live = calls, live
        self.files = ReportFiles(home)
        self.every_s = EVERY_S
        self._values: dict[str, list[Metric]] = {}

    @property
    def values(self) -> dict[str, list[Metric]]:
        """By plugin: its last answer."""
        return self._values

    async def run(self) -> None:
        """Sample until cancelled. A disk that is full is reported, and tried again."""
        while True:
            await asyncio.sleep(self.every_s)
            try:
                if self._live.ready:
                    await self.sample()
            except Exception as error:  # monitoring must not stop: log it and try again
                emit("sample-failed", level="error", error=f"{type(error).__name__}: {error}")

    async def sample(self) -> None:
        sinks, counters = self._calls.active_at("sink"), self._calls.active_at("metrics")
        self._values = {
            name: told for name, told in self._values.items() if any(name == each.name for each in counters)
        }
        if not sinks and not counters:
            return
        at_s, cycle = self._live.clock()
        sample = await self._live.ask(partial(sample_of, at_s=at_s, cycle=cycle))
        for plugin in sinks:
            text = await self._calls.call(plugin, "sink", str, sample)
            if text is None:
                continue
            if len(text) > MAX_TEXT:
                await self._calls.set_aside(
                    plugin.name, f"sink: returned {len(text):,} characters; {MAX_TEXT:,} is the most"
                )
            elif text:
                await self.files.append_or_report(plugin.name, text)
        for plugin in counters:
            told = await self._calls.call(plugin, "metrics", list[Metric], sample)
            if told is None:
                continue
            if why := wrong_metrics(told):
                await self._calls.set_aside(plugin.name, f"metrics: {why}")
            else:
                self._values[plugin.name] = told


def wrong_metrics(told: Sequence[Metric]) -> str:
    """What is wrong with these numbers, in a clause; empty: nothing."""
    if len(told) > MAX_METRICS:
        return f"returned {len(told):,} numbers; {MAX_METRICS:,} is the most"
    seen = set()
    for each in told:
        if not _METRIC.fullmatch(each.name):
            return f"returned the name {each.name!r:.80}; use lower-case letters, digits and '_'"
        if not math.isfinite(each.value):
            return f"returned {each.value} as {each.name}; expected a number"
        if len(each.subject) > MAX_SUBJECT or not each.subject.isprintable():
            return f"returned a subject for {each.name} that is too long or not printable"
        if (each.name, each.subject) in seen:
            return f"returned {each.name} twice for {each.subject!r:.80}"
        seen.add((each.name, each.subject))
    return ""
