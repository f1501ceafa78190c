"""The simulated cluster of the partition benchmark: 16 nodes of 8 MI300X, driven by the shipped state and planner.

In:    jobs with their arrival times, the modes at the start, a planner or none.   Out: the GPU-seconds served.
Nothing sleeps: time is a number that jumps from tick to tick.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from kaiwo.decide import decide
from kaiwo.gpus.partitioning.demand import GpuModeState, node_states, waiting_demands
from kaiwo.gpus.partitioning.planner import plan_partitions
from kaiwo.gpus.partitioning.planner_types import GpuKey, PlannerSettings
from kaiwo.gpus.partitioning.rollout import (
    change_done,
    changed_nodes,
    changes_starting,
    states_after,
    with_closed_devices,
)
from kaiwo.model.events import Event, NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.node import Node
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState

NODES, GPUS, MODEL, MIB = 16, 8, "MI300X", 196_608
HOURS, PHASE_HOURS, LOAD, MAJORITY = 48, 4, 0.9, 0.9
SPX, CPX = Mode("SPX", "NPS1"), Mode("CPX", "NPS1")
TICK_S, PLAN_EVERY_S = 30, 60
SMALL_S, GANG_S = (20 * 60, 60 * 60), (3600, 3 * 3600)
GANG = Request(gpus=GPUS)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    arrives_s: int
    lasts_s: int
    is_gang: bool

    @property
    def gpu_s(self) -> float:
        return self.lasts_s * (GPUS if self.is_gang else 1 / GPUS)


def make_jobs(seed: int) -> list[Job]:
    """Phases alternate; 90 % of the offered GPU-hours are small in one and gangs in the next."""
    draw = random.Random(seed)
    jobs: list[Job] = []
    total_gpus = NODES * GPUS
    for is_gang, span, gpus in ((False, SMALL_S, 1 / GPUS), (True, GANG_S, GPUS)):
        now_s = 0.0
        while now_s < HOURS * 3600:
            is_major = (int(now_s // (PHASE_HOURS * 3600)) % 2 == 1) == is_gang
            load = LOAD * (MAJORITY if is_major else 1 - MAJORITY)
            rate = load * total_gpus / (gpus * (span[0] + span[1]) / 2)
            step = draw.expovariate(rate)
            edge = (now_s // (PHASE_HOURS * 3600) + 1) * PHASE_HOURS * 3600
            if now_s + step >= edge:
                now_s = edge  # the rate changes here; waiting times have no memory
                continue
            now_s += step
            kind = "gang" if is_gang else "small"
            jobs.append(Job(f"default/{kind}-{len(jobs):06d}", int(now_s), draw.randint(*span), is_gang))
    return sorted(jobs, key=lambda job: (job.arrives_s, job.name))


@dataclass
class Outcome:
    """What one simulation measured."""

    served_gpu_s: float = 0.0
    started: int = 0
    gave_up: int = 0
    gave_up_gangs: int = 0
    changes: int = 0
    waited_s: list[int] = field(default_factory=list)


class Cluster:
    """Runs one list of jobs to the end of the 48 hours."""

    def __init__(
        self, modes: list[Mode], terms: PlannerSettings | None, patience_s: int, partition: str = "CPX"
    ) -> None:
        self.terms, self.patience_s = terms, patience_s
        self.small = Request(gpus=1, partition=partition)
        self.state = ClusterState()
        self.modes = {(f"node-{at:02d}", f"gpu-{gpu}"): mode for at, mode in enumerate(modes) for gpu in range(GPUS)}
        self.course: dict[GpuKey, GpuModeState] = {}  # what the planner has begun
        self.state.patch([QueueChanged(Queue("default")), *map(self._node, sorted({name for name, _ in self.modes}))])
        self.changing: list[tuple[int, GpuKey]] = []
        self.running: list[tuple[int, str]] = []
        self.outcome = Outcome()

    def run(self, jobs: list[Job]) -> Outcome:
        self.jobs = {job.name: job for job in jobs}
        end_s = HOURS * 3600
        coming, patient = deque(jobs), deque(jobs)
        for now_s in range(0, end_s, TICK_S):
            events: list[Event] = self._ended(now_s)
            while coming and coming[0].arrives_s <= now_s:
                events.append(self._submitted(coming.popleft()))
            while patient and patient[0].arrives_s + self.patience_s <= now_s:
                job = patient.popleft()
                if self.state.backlog.is_queued(job.name):
                    events.append(WorkloadGone(job.name))
                    self.outcome.gave_up += 1
                    self.outcome.gave_up_gangs += job.is_gang
            events += self._changed(now_s)
            self.state.patch(events)
            if self.terms is not None and now_s % PLAN_EVERY_S == 0:
                self._plan(now_s)
            self._decide(now_s, end_s)
        return self.outcome

    def _ended(self, now_s: int) -> list[Event]:
        events: list[Event] = []
        while self.running and self.running[0][0] <= now_s:
            _, name = heappop(self.running)
            events += [WorkloadGone(name), PodGone(name, "main-0")]
        return events

    def _changed(self, now_s: int) -> list[Event]:
        names = set()
        while self.changing and self.changing[0][0] <= now_s:
            _, key = heappop(self.changing)
            self.course[key] = change_done(self.course[key], now_s)
            self.modes[key] = self.course[key].mode
            names.add(key[0])
        return [self._node(name) for name in sorted(names)]

    def _plan(self, now_s: int) -> None:
        assert self.terms is not None
        needs = waiting_demands(self.state, now_s)
        if not needs and not any(state.goal for state in self.course.values()):
            return  # no work waits, and no change is under way that could be given up
        nodes = node_states(self.state, self.course, now_s)
        plan = plan_partitions(now_s, nodes, needs, self.terms)
        takes_s = {(step.node, step.change.gpu): step.takes_s for step in plan.steps}
        before, self.course = self.course, states_after(nodes, plan)
        for key in changes_starting(before, self.course):
            heappush(self.changing, (now_s + takes_s[key], key))
            self.outcome.changes += 1
        self.state.patch([self._node(name) for name in changed_nodes(before, self.course)])

    def _decide(self, now_s: int, end_s: int) -> None:
        while True:
            plan = decide(self.state.snapshot(now_s))
            assumed = assume(self.state, plan, now_s)
            self.state.record_cycle(plan)
            self.state.patch(assumed)
            for start in plan.starts:
                job = self.jobs[start.workload]
                heappush(self.running, (now_s + job.lasts_s, job.name))
                milli = sum(share.milli for share in start.devices)
                self.outcome.served_gpu_s += min(job.lasts_s, end_s - now_s) * milli / 1000
                self.outcome.started += 1
                self.outcome.waited_s.append(now_s - job.arrives_s)
            if not plan.unfinished:
                return

    def _submitted(self, job: Job) -> WorkloadChanged:
        role = Role(GANG if job.is_gang else self.small)
        limit_s = (GANG_S if job.is_gang else SMALL_S)[1]
        return WorkloadChanged(Workload(job.name, (role,), submitted_s=job.arrives_s, time_limit_s=limit_s))

    def _node(self, name: str) -> NodeChanged:
        """As the driver would show it: every GPU in its mode, those that change gone."""
        wholes = {number: Gpu(f"gpu-{number}", MODEL, MIB) for number in range(GPUS)}
        gpus = tuple(part for at, gpu in wholes.items() for part in partition_gpu(gpu, self.modes[name, f"gpu-{at}"]))
        return NodeChanged(
            with_closed_devices(Node(name, cpu_milli=192_000, memory_mib=2**21, pods=1000, gpus=gpus), self.course)
        )


def count_servers(jobs: list[Job], servers: int, patience_s: int) -> float:
    """GPU-seconds that this many equal places serve, first come first served, on the same ticks.

    This is what the cluster does whose modes never change: a place is a place. It lets every split be looked at; a test
    holds it against the cluster itself.
    """
    if not servers:
        return 0.0
    end_s, served = HOURS * 3600, 0.0
    free_at = [0] * servers
    for job in jobs:
        start_s = -(-max(job.arrives_s, free_at[0]) // TICK_S) * TICK_S
        if start_s < end_s and start_s - job.arrives_s < patience_s:
            heapreplace(free_at, start_s + job.lasts_s)
            served += job.gpu_s * min(job.lasts_s, end_s - start_s) / job.lasts_s
    return served
