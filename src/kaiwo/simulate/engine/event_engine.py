"""The discrete-event engine: everything that happens at one instant is one batch, then the shipped `decide` runs.

In:    nodes, jobs, and what happens to nodes.   Out: a RunRecord of starts, ends, evictions and samples.
Never: sleeps, reads a clock for a decision, or decides anything itself. Equal inputs give equal records.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kaiwo.history.journal_writer import Journal
from kaiwo.model.errors import KaiwoError
from kaiwo.model.events import Event, NodeChanged, PodChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Phase
from kaiwo.plugins.registry import Registry
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.learned_run_times import RunTimes
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.engine.node_events import NodeEvent, NodeEvents
from kaiwo.simulate.engine.run_record import RunRecord
from kaiwo.simulate.engine.service_orders import FirstComeFirstServed, ServiceOrder

MOST_CYCLES = 1_000  # at one instant; more would mean that plans never settle
PROGRESS_EVERY = 200  # instants
END, FALL = 0, 1  # timers of running jobs: it ends, or its priority falls


@dataclass(slots=True)
class ActiveJob:
    """A job that has arrived and not ended."""

    job: SimulatedJob
    left_s: int  # service until it ends
    priority: int = 0
    attained_s: int = 0
    since_s: int = -1  # when it started to run; -1: it waits
    starts: int = 0  # the number of its current run: timers of earlier runs are void
    lost_s: int = 0  # service that it had to repeat

    def attained_at(self, now_s: int) -> int:
        return self.attained_s + (now_s - self.since_s if self.since_s >= 0 else 0)

    def left_at(self, now_s: int) -> int:
        return self.left_s - (now_s - self.since_s if self.since_s >= 0 else 0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated, besides the jobs."""

    nodes: Sequence[Node]
    policy: Policy
    plugins: Registry
    order: ServiceOrder = field(default_factory=FirstComeFirstServed)
    queues: Sequence[Queue] = (Queue("default"),)
    node_events: Sequence[NodeEvent] = ()
    restart_s: int = 0  # service that a job repeats after it was stopped
    until_s: int = 0  # the run ends then; 0: when the last job has ended
    forgets_scores: bool = False  # its scores may not be kept from one decision to the next
    recorded: Sequence[Event] = ()  # queues and topologies of a recorded cluster
    learns_run_times: bool = False  # for planned starts and backfill, as a running Kaiwo does


class EventEngine:
    def __init__(self, scenario: Scenario, journal: Journal | None = None) -> None:
        self._scenario, self._order = scenario, scenario.order
        self.runner = CycleRunner(journal, scenario.policy, scenario.plugins, is_budget_fixed=True)
        self._active: dict[str, ActiveJob] = {}
        self._running: dict[str, ActiveJob] = {}
        self._timers: list[tuple[int, int, str, int]] = []  # a heap: when, END or FALL, job, number of its run
        self._run_times = RunTimes() if scenario.learns_run_times else None
        self._nodes = NodeEvents(scenario.nodes, scenario.node_events)
        self._events: list[Event] = []  # of this instant, not patched yet
        self.now_s = 0
        self.record = RunRecord()
        self._patch([*map(QueueChanged, scenario.queues), *scenario.recorded, *map(NodeChanged, scenario.nodes)])

    def run(self, jobs: Sequence[SimulatedJob], report: Callable[[int, int], None] = lambda *_: None) -> RunRecord:
        """All jobs, in order of time. `report` gets the number of jobs that have ended, and of all."""
        waiting = sorted(jobs, key=lambda job: (job.submitted_s, job.name))
        self.record.begin(self._scenario.nodes, waiting)
        arrived, instants = 0, 0
        while True:
            now_s = self._next_s(waiting[arrived].submitted_s if arrived < len(waiting) else None)
            if now_s is None or (self._scenario.until_s and now_s > self._scenario.until_s):
                break
            self.record.advance(self.now_s, now_s)
            self.now_s = now_s
            self._end_and_fall()
            self._change_nodes()
            until = arrived
            while until < len(waiting) and waiting[until].submitted_s <= now_s:
                until += 1
            self._arrive(waiting[arrived:until])
            arrived = until
            self._update_priorities()
            self._settle()
            self.record.sample(self.now_s, self.runner.state, len(self._active) - len(self._running))
            instants += 1
            if instants % PROGRESS_EVERY == 0:
                report(len(self.record.ended), len(waiting))
        self.record.finish(self.now_s, self._active.values())
        report(len(waiting), len(waiting))
        return self.record

    def _next_s(self, arrival_s: int | None) -> int | None:
        while self._timers and not self._is_live(self._timers[0]):
            heapq.heappop(self._timers)
        due = [at for at in (arrival_s, self._timers[0][0] if self._timers else None) if at is not None]
        if not due and not self._active:
            return None  # node events alone have nothing to show
        due += [at for at in (self._nodes.next_s, self._look_again_s()) if at is not None]
        return min(due, default=None)

    def _look_again_s(self) -> int | None:
        state = self.runner.state
        due = [at for at in (state.look_again_s, state.backlog.next_due_s) if at]
        return max(self.now_s + 1, min(due)) if due else None

    def _is_live(self, timer: tuple[int, int, str, int]) -> bool:
        active = self._running.get(timer[2])
        return active is not None and active.starts == timer[3]

    def _end_and_fall(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s:
            timer = heapq.heappop(self._timers)
            if not self._is_live(timer):
                continue
            active = self._running[timer[2]]
            if timer[1] == END:
                self._end(active)
            else:
                self._set_priority(active)
                self._wind_fall(active)

    def _end(self, active: ActiveJob) -> None:
        job = active.job
        self._leave(active)
        del self._active[job.name]
        self._events.append(WorkloadGone(job.name, run_s=job.runs_s if active.starts == 1 else 0))
        self._order.ended(job, self.now_s)
        self.record.end(active.job, self.now_s)

    def _leave(self, active: ActiveJob) -> None:
        """It holds nothing any more."""
        name = active.job.name
        self._events += [PodGone(name, pod) for pod in sorted(self.runner.state.pods.get(name, ()))]
        if self._running.pop(name, None) is not None:
            self.record.release(active.job)

    def _arrive(self, jobs: Iterable[SimulatedJob]) -> None:
        for job in jobs:
            active = self._active[job.name] = ActiveJob(job, job.runs_s)
            active.priority = self._order.priority(job, 0, job.runs_s)
            self._events.append(WorkloadChanged(job.workload(active.priority)))
            self.record.submitted += 1

    def _change_nodes(self) -> None:
        state = self.runner.state
        if self._nodes.is_draining:  # what ended just now has left its node
            self._patch(self._events)
            self._events = []
        for change in self._nodes.due(self.now_s, state.allocations_on):
            self._events.append(NodeChanged(change.node))
            self.record.resize(change.gpus_milli)
            for name in sorted({key[1] for key in state.allocations_on.get(change.node.name, ()) if key[0] == "pod"}):
                if change.stops_pods and name in self._running:
                    self._stop(self._running[name], is_work_lost=True)
                    self.record.failures += 1

    def _update_priorities(self) -> None:
        """What the order has learned, and how far running jobs have come."""
        now_s = self.now_s
        changed = self._order.changed_groups(
            now_s, lambda: [(each.job, each.attained_at(now_s)) for each in self._active.values()]
        )
        if changed is None or changed:
            for active in list(self._active.values()):
                if changed is None or active.job.group in changed:
                    self._set_priority(active)
        elif self._order.preempts:
            for active in self._running.values():
                self._set_priority(active)

    def _set_priority(self, active: ActiveJob) -> None:
        now_s = self.now_s
        priority = self._order.priority(active.job, active.attained_at(now_s), active.left_at(now_s))
        if priority != active.priority:
            active.priority = priority
            self._events.append(WorkloadChanged(active.job.workload(priority)))

    def _settle(self) -> None:
        """Cycles of this instant, until nothing more is decided."""
        for _ in range(MOST_CYCLES):
            self._patch(self._events)
            self._events = []
            if self._scenario.forgets_scores:
                self.runner.state.caches.clear()
            decision = self.runner.cycle(self.now_s)
            if decision is None:
                return
            self.record.cycles += 1
            self._carry_out(decision.plan)
            if not self._events and not decision.plan.unfinished and not decision.plan.unclaimed:
                return
        raise KaiwoError(f"the plans of one instant did not settle within {MOST_CYCLES:,} cycles, at {self.now_s} s")

    def _carry_out(self, plan: Plan) -> None:
        pods = self.runner.state.pods
        for eviction in plan.evictions:
            active = self._running.get(eviction.workload)
            if active is not None:
                self._stop(active, is_work_lost=False)
                self.record.evict(active.job, eviction, self.now_s)
        for name in dict.fromkeys(start.workload for start in plan.starts):
            active = self._active[name]
            held = pods[name]
            self._events += [PodChanged(replace(pod, phase=Phase.RUNNING)) for _, pod in sorted(held.items())]
            if len(held) == active.job.pods:
                self._begin(active)

    def _begin(self, active: ActiveJob) -> None:
        active.since_s = self.now_s
        active.starts += 1
        self._running[active.job.name] = active
        heapq.heappush(self._timers, (self.now_s + active.left_s, END, active.job.name, active.starts))
        self._wind_fall(active)
        self.record.start(active.job, self.now_s, is_first=active.starts == 1)

    def _wind_fall(self, active: ActiveJob) -> None:
        in_s = self._order.falls_in_s(active.job, active.attained_at(self.now_s))
        if in_s:
            heapq.heappush(self._timers, (self.now_s + in_s, FALL, active.job.name, active.starts))

    def _stop(self, active: ActiveJob, is_work_lost: bool) -> None:
        """It was preempted and keeps its work but the cost of a restart; or its node failed, and it begins again."""
        served_s = self.now_s - active.since_s
        active.attained_s += served_s
        lost_s = active.attained_s - active.lost_s if is_work_lost else min(self._scenario.restart_s, served_s)
        active.left_s += lost_s - served_s
        active.lost_s += lost_s
        self.record.lost_gpu_milli_s += lost_s * active.job.gpu_milli
        self._leave(active)
        active.since_s = -1

    def _patch(self, events: Sequence[Event]) -> None:
        if events:
            if self._run_times is not None:
                events = self._run_times.add_run_times(events, self.now_s)
            self.runner.state.patch(events)
            self.runner.journal_events(events)
