"""Give sinks a sample of the cluster now and then, and write down what they make of it.

In:    the cluster state, every few seconds.   Out: lines in KAIWO_HOME/sinks/NAME.log, of which one older file is kept.
Never: lets a sink write by itself. It only forms text, so it needs no rights, and a slow one delays no decision.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kaiwo.plugins.contract import MonitoringSample, QueueSample
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.runtime.log import emit
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.snapshot.queue_table import GPU, INFINITE

T = TypeVar("T")
FOLDER = "sinks"
EVERY_S = 10.0
MAX_BYTES = 16 << 20  # of one file
MAX_TEXT = 1 << 20  # of one answer


class SampledLoop(Protocol):
    """The part of the scheduling loop that sinks need."""

    ready: bool

    def ask(self, question: Callable[[ClusterState], T]) -> Awaitable[T]: ...

    def clock(self) -> tuple[int, int]:
        """The cluster's time, and the number of the last cycle."""


class SinkPlugin(Protocol):
    name: str

    def sink(self, sample: MonitoringSample) -> str: ...


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


class SinkFiles:
    """One file for each sink. A file that is full becomes NAME.log.1."""

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


def write_sample(plugin: SinkPlugin, sample: MonitoringSample, files: SinkFiles) -> str:
    """Ask one sink and write its text. Returns what is wrong with it, or nothing."""
    try:
        text: Any = plugin.sink(sample)
    except PluginFaultError as fault:
        return fault.detail
    except Exception as error:  # a trusted sink runs here and may raise anything; it is set aside and reported
        return f"raised {type(error).__name__}: {error}"
    if not isinstance(text, str):
        return f"returned {type(text).__name__}; expected text"
    if len(text) > MAX_TEXT:
        return f"returned {len(text):,} characters; {MAX_TEXT:,} is the most"
    if text:
        files.append(plugin.name, text if text.endswith("\n") else text + "\n")
    return ""


async def feed_sinks(
    live: SampledLoop,
    home: Path,
    sinks: Callable[[], Sequence[SinkPlugin]],
    set_aside: Callable[[str, str], None],
    every_s: float = EVERY_S,
) -> None:
    """Run until cancelled. A sink that misbehaves is set aside; a disk that is full is reported, and tried again."""
    files = SinkFiles(home)
    while True:
        await asyncio.sleep(every_s)
        active = sinks()
        if not active or not live.ready:
            continue
        at_s, cycle = live.clock()
        sample = await live.ask(partial(sample_of, at_s=at_s, cycle=cycle))
        for plugin in active:
            try:
                problem = await asyncio.to_thread(write_sample, plugin, sample, files)
            except OSError as error:
                emit("sink-not-written", level="error", plugin=plugin.name, error=str(error))
                continue
            if problem:
                await live.ask(partial(_report, set_aside, plugin.name, problem))


def _report(set_aside: Callable[[str, str], None], name: str, problem: str, _: ClusterState) -> None:
    set_aside(name, problem)
