"""A discrete-event run: work arrives and ends on a virtual clock, and the shipped `decide` places it.

In:    a cluster, timed arrivals, and rules about what ends when.   Out: one ArrivalOutcome for each arrival.
Never: sleeps, reads the wall clock for a decision, or decides anything itself.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kaiwo.model.events import Event, NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.node import Node
from kaiwo.model.plan import Start
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.cycle_runner import CycleRunner


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: int
    workload: Workload
    runs_s: int = 0  # how long it runs once it has started; 0: it never ends


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """What one decision did about the arrival that caused it."""

    arrival: Arrival
    starts: tuple[Start, ...]  # of all workloads; empty: nothing fitted
    took_ns: int  # processor time, from the snapshot to the patched state: other processes do not count


class VirtualClock:
    """Runs arrivals one by one through a `CycleRunner`. Work that does not start at once is dropped or waits."""

    def __init__(self, nodes: Iterable[Node], policy: Policy, plugins: Registry, drops: bool) -> None:
        self.runner = CycleRunner(None, policy, plugins)
        self._drops = drops
        self._ends: list[tuple[int, str]] = []  # a heap: when running work ends
        self._runs_s: dict[str, int] = {}  # by workload that has not ended
        self.runner.state.patch([QueueChanged(Queue("default")), *(NodeChanged(node) for node in nodes)])

    def run(
        self, arrivals: Iterable[Arrival], on_end: Callable[[str, int], None] | None = None
    ) -> Iterator[ArrivalOutcome]:
        """In order of time. What ends at the moment of an arrival frees its place first."""
        for arrival in arrivals:
            while self._ends and self._ends[0][0] <= arrival.at_s:
                self._end_next(on_end)
            yield self._arrive(arrival)
        while self._ends:
            self._end_next(on_end)

    def _arrive(self, arrival: Arrival) -> ArrivalOutcome:
        name = arrival.workload.name
        self._runs_s[name] = arrival.runs_s
        self.runner.state.patch([WorkloadChanged(arrival.workload)])
        starts, took_ns = self._decide(arrival.at_s)
        if self._drops and not any(start.workload == name for start in starts):
            self.runner.state.patch([WorkloadGone(name)])
            del self._runs_s[name]
        return ArrivalOutcome(arrival, starts, took_ns)

    def _end_next(self, on_end: Callable[[str, int], None] | None) -> None:
        at_s, name = heapq.heappop(self._ends)
        pods = sorted(self.runner.state.pods.get(name, ()))
        gone: list[Event] = [PodGone(name, pod) for pod in pods]
        self.runner.state.patch([*gone, WorkloadGone(name)])
        del self._runs_s[name]
        if on_end is not None:
            on_end(name, at_s)
        if not self._drops:
            self._decide(at_s)

    def _decide(self, now_s: int) -> tuple[tuple[Start, ...], int]:
        began = time.process_time_ns()
        decision = self.runner.cycle(now_s)
        took_ns = time.process_time_ns() - began
        starts = decision.plan.starts if decision is not None else ()
        for name in dict.fromkeys(start.workload for start in starts):
            if self._runs_s[name]:
                heapq.heappush(self._ends, (now_s + self._runs_s[name], name))
        return starts, took_ns
