"""How long the phases of scheduling cycles take: applying events, preparing, deciding, assuming, permits, carrying out.

In:    blocks of the scheduling loop.   Out: a histogram of each phase, and the phases of each cycle for traces.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kaiwo.runtime.loop.cycle_runner import CycleSummary
from kaiwo.runtime.loop.loop_metrics import BOUNDS_S, Histogram

EVENTS, PREPARE = "events", "prepare"
PHASES = (EVENTS, PREPARE, "decide", "assume", "permit", "apply")


class PhaseSpan(NamedTuple):
    phase: str
    began_ns: int  # since 1970
    took_ns: int


class CyclePhases:
    def __init__(self) -> None:
        self.times = {phase: Histogram(BOUNDS_S) for phase in PHASES}
        self.on_cycle: Callable[[CycleSummary, Sequence[PhaseSpan]], None] | None = None
        self._spans: list[PhaseSpan] = []

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        began_ns, began = time.time_ns(), time.perf_counter_ns()
        if phase in (EVENTS, PREPARE):  # a cycle begins with its last events; many looks find nothing to decide
            self._spans = [each for each in self._spans[-1:] if phase == PREPARE and each.phase == EVENTS]
        try:
            yield
        finally:
            took_ns = time.perf_counter_ns() - began
            self.times[phase].add(took_ns / 1e9)
            if self.on_cycle is not None:
                self._spans.append(PhaseSpan(phase, began_ns, took_ns))

    def cycle_ended(self, summary: CycleSummary) -> None:
        spans, self._spans = self._spans, []
        if self.on_cycle is not None:
            self.on_cycle(summary, spans)
