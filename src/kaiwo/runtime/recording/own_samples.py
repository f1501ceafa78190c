"""One sample of Kaiwo itself: its cycles since the sample before, its processor time, memory and event loop."""

import os
import time
from typing import NamedTuple

import numpy as np

from kaiwo.history.series.integer_codec import MISSING
from kaiwo.history.series.series_writer import KindFrame
from kaiwo.runtime.loop.loop_metrics import CycleTimes, LoopLag
from kaiwo.runtime.loop.loop_protocol import LiveLoop
from kaiwo.runtime.recording.stalled_work import StalledWork, idle_gpu_milli

SCHEDULER, PROCESS = ("scheduler",), ("kaiwo",)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Counters(NamedTuple):
    """Since the start."""

    cycles: int
    cycle_s: float
    failures: int
    starts: int
    evictions: int
    kept: int  # planned starts
    broken: int
    at_s: float  # by the monotonic clock
    cpu_s: float


class OwnSamples:
    def __init__(self, live: LiveLoop, cycles: CycleTimes, lag: LoopLag) -> None:
        self._live, self._cycles, self._lag = live, cycles, lag
        self._stalled = StalledWork(live)
        self._before = self._counters()

    def sample(self) -> tuple[KindFrame, KindFrame]:
        """Of the scheduler and of the process."""
        before, now = self._before, self._counters()
        self._before = now
        cycles = now.cycles - before.cycles
        scheduler = {
            "cycles": cycles,
            "cycle_us": round((now.cycle_s - before.cycle_s) * 1e6 / cycles) if cycles else MISSING,
            "cycle_failures": now.failures - before.failures,
            "starts": now.starts - before.starts,
            "evictions": now.evictions - before.evictions,
            "idle_gpu_milli": idle_gpu_milli(self._live.state),
            "stalled_s": self._stalled.stalled_s(now.cycles),
            "eligible": self._stalled.eligible(),
            "promises_kept": now.kept - before.kept,
            "promises_broken": now.broken - before.broken,
        }
        passed_s = now.at_s - before.at_s
        process = {
            "cpu_permille": round((now.cpu_s - before.cpu_s) * 1000 / passed_s) if passed_s > 0 else MISSING,
            "memory_mib": own_memory_mib(),
            "loop_lag_us": round(self._lag.quantile(0.99) * 1e6) if len(self._lag) else MISSING,
        }
        return _frame(SCHEDULER, scheduler), _frame(PROCESS, process)

    def _counters(self) -> Counters:
        live = self._live
        return Counters(
            cycles=self._cycles.count,
            cycle_s=self._cycles.sum_s,
            failures=live.health.failures,
            starts=live.allocations.stages["allocated"],
            evictions=sum(live.evicted.values()),
            kept=live.allocations.promises["kept"],
            broken=live.allocations.promises["delayed"] + live.allocations.promises["dropped"],
            at_s=time.monotonic(),
            cpu_s=time.process_time(),
        )


def own_memory_mib() -> int:
    """Resident memory of this process; MISSING where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES >> 20
    except (OSError, ValueError, IndexError):
        return MISSING


def _frame(names: tuple[str, ...], values: dict[str, int]) -> KindFrame:
    return KindFrame(names, {name: np.array([value], np.int64) for name, value in values.items()})
