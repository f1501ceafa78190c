"""The simulated cluster of the backfill benchmark: 128 nodes of 8 GPUs, driven by the shipped state and `decide`.

Jobs have arrival times, true run times and estimates; the result has waits, use and missed planned starts. Nothing
sleeps: time is a number that jumps from one event to the next. Whether a planned start was missed, and whether
backfilled work caused it, is judged here from which job held which device when, not from what the plan says.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from kaiwo.decide import decide
from kaiwo.model.events import Event, NodeChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.plan import Plan
from kaiwo.model.planned_start import DelayCause, PlannedStart
from kaiwo.model.policy import Policy
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.capacity_timeline import OVERDUE_S
from kaiwo.snapshot.cluster_state import ClusterState

NODES, GPUS, MI300X_MIB = 128, 8, 196_608
DAYS, LOAD, DAY_S = 14, 0.85, 86_400
MEDIAN_S, SIGMA, LONGEST_S = 1800, 1.2, DAY_S
SIZES = ((0.70, (1,)), (0.20, (2, 4, 8)), (0.08, (16, 32, 64)), (0.02, (128, 256, 512)))
LARGE = 128
ERROR_SIGMA = 0.5
MAX_CYCLES = 50  # at one moment; more would mean that the plans never end


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    arrives_s: int
    gpus: int
    runs_s: int
    estimate_s: int


@dataclass(slots=True)
class Result:
    """What one simulation measured."""

    waits_s: dict[int, list[int]] = field(default_factory=dict)  # by GPUs
    useful_gpu_s: int = 0  # within the days of arrivals, of runs that came to their own end
    lost_gpu_s: int = 0
    stopped: int = 0  # at a deadline
    promised: int = 0
    moved_later: Counter[str] = field(default_factory=Counter)  # by the cause in the plan
    broken: Counter[str] = field(default_factory=Counter)  # started later than planned, by the cause in the plan
    broken_by_backfill: int = 0
    cycles: int = 0


def make_jobs(seed: int, has_errors: bool, days: float = DAYS) -> list[Job]:
    """Poisson arrivals at the load; the same work with and without errors in its estimates."""
    draw, error = random.Random(f"jobs-{seed}"), random.Random(f"errors-{seed}")
    mean_gpus = sum(part * sum(sizes) / len(sizes) for part, sizes in SIZES)
    rate = LOAD * NODES * GPUS / (mean_gpus * mean_run_s())
    jobs: list[Job] = []
    now_s = draw.expovariate(rate)
    while now_s < days * DAY_S:
        sizes = draw.choices([sizes for _, sizes in SIZES], [part for part, _ in SIZES])[0]
        gpus = draw.choice(sizes)
        runs_s = max(1, min(LONGEST_S, round(draw.lognormvariate(math.log(MEDIAN_S), SIGMA))))
        factor = error.lognormvariate(0, ERROR_SIGMA) if has_errors else 1
        jobs.append(Job(f"default/job-{len(jobs):06d}", int(now_s), gpus, runs_s, max(1, round(runs_s * factor))))
        now_s += draw.expovariate(rate)
    return jobs


def mean_run_s() -> float:
    """Of the lognormal that is cut at the longest run."""
    mu, cut = math.log(MEDIAN_S), (math.log(LONGEST_S) - math.log(MEDIAN_S)) / SIGMA
    below = math.exp(mu + SIGMA**2 / 2) * _normal(cut - SIGMA)
    return below + LONGEST_S * (1 - _normal(cut))


def _normal(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


class Cluster:
    """One run of all jobs to the end of the last."""

    def __init__(self, jobs: list[Job], policy: Policy, days: float = DAYS) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._arrivals = list(reversed(jobs))
        self._policy, self._until_s = policy, round(days * DAY_S)
        self._state = ClusterState()
        self._state.patch(_nodes())
        self._ends: list[tuple[int, str, int]] = []  # end, job, attempt
        self._attempt: Counter[str] = Counter()
        self._since_s: dict[str, int] = {}  # of running jobs
        self._waits_since_s: dict[str, int] = {}
        self._waited_s: Counter[str] = Counter()
        self._published: dict[str, tuple[PlannedStart, int]] = {}  # and since when it has these places
        self._best_s: dict[str, int] = {}  # the earliest start that was ever planned
        self._delay: dict[str, DelayCause] = {}  # why it was last moved later
        self._planned: set[str] = set()  # jobs that started at a planned start of their own: not backfilled
        self.result = Result()

    def run(self) -> Result:
        """Run until the last job has ended."""
        while (now_s := self._next_s()) is not None:
            self._apply_events(now_s)
            for _ in range(MAX_CYCLES):
                plan = self._cycle(now_s)
                if plan.is_empty and not plan.unfinished:
                    break
            else:
                raise AssertionError(f"the plans never end at {now_s}: {plan}")
            self._check_due_starts(now_s)
        assert not self._waits_since_s, f"{len(self._waits_since_s)} jobs never started"
        return self.result

    def _next_s(self) -> int | None:
        if not self._arrivals and not self._ends:
            return None
        times = [self._arrivals[-1].arrives_s] if self._arrivals else []
        times += [self._ends[0][0]] if self._ends else []
        return min([*times, self._state.look_again_s or times[0]])

    def _apply_events(self, now_s: int) -> None:
        """Jobs end, then jobs arrive."""
        events: list[Event] = []
        while self._ends and self._ends[0][0] <= now_s:
            _, name, attempt = heappop(self._ends)
            if self._attempt[name] == attempt and name in self._since_s:
                events += [WorkloadGone(name), *(PodGone(name, pod) for pod in self._state.pods[name])]
                self._end(name, now_s)
        while self._arrivals and self._arrivals[-1].arrives_s <= now_s:
            job = self._arrivals.pop()
            self._waits_since_s[job.name] = job.arrives_s
            events.append(WorkloadChanged(_workload(job)))
        self._state.patch(events)

    def _end(self, name: str, now_s: int) -> None:
        job, since_s = self._jobs[name], self._since_s.pop(name)
        self.result.useful_gpu_s += job.gpus * max(0, min(now_s, self._until_s) - since_s)
        self.result.waits_s.setdefault(job.gpus, []).append(self._waited_s[name])

    def _cycle(self, now_s: int) -> Plan:
        plan = decide(self._state.snapshot(now_s), self._policy)
        assumed = assume(self._state, plan, now_s)
        self._state.record_cycle(plan)
        self._state.patch(assumed)
        self.result.cycles += 1
        self._record_planned_starts(plan, now_s)
        for name in dict.fromkeys(start.workload for start in plan.starts):
            self._start(name, now_s)
        stopped = {(each.workload, each.pod) for each in plan.evictions}
        for name in sorted({name for name, _ in stopped}):
            self._stop(name, now_s)
        self._state.patch([PodGone(*each) for each in sorted(stopped)])
        return plan

    def _start(self, name: str, now_s: int) -> None:
        self._attempt[name] += 1
        self._since_s[name] = now_s
        self._waited_s[name] += now_s - self._waits_since_s.pop(name)
        heappush(self._ends, (now_s + self._jobs[name].runs_s, name, self._attempt[name]))
        best_s, planned = self._best_s.pop(name, None), self._published.pop(name, None)
        if planned is not None:
            self._planned.add(name)
        if best_s is not None and now_s > best_s:
            delay = self._delay.get(name)
            soon = "a-minute-late" if now_s <= best_s + OVERDUE_S else "unexplained"
            self.result.broken[delay.value if delay else soon] += 1

    def _stop(self, name: str, now_s: int) -> None:
        """Stopped at its deadline: it waits again, and its work is lost."""
        self.result.stopped += 1
        self.result.lost_gpu_s += self._jobs[name].gpus * (now_s - self._since_s.pop(name))
        self._waits_since_s[name] = now_s

    def _record_planned_starts(self, plan: Plan, now_s: int) -> None:
        for planned in plan.promises:
            before, since_s = self._published.get(planned.workload, (None, now_s))
            if before is None:
                self.result.promised += 1
            elif planned.start_s > before.start_s:
                self.result.moved_later[planned.delay.value if planned.delay else "unexplained"] += 1
                self._blame(before, since_s, partial(self._stays_beyond, before.start_s))
            if planned.delay is not None:
                self._delay[planned.workload] = planned.delay  # kept, although a later plan may move it earlier
            is_same = before is not None and before.places == planned.places
            self._published[planned.workload] = (planned, since_s if is_same else now_s)
            self._best_s[planned.workload] = min(planned.start_s, self._best_s.get(planned.workload, planned.start_s))

    def _check_due_starts(self, now_s: int) -> None:
        """Blame a planned start that is due and did not happen on a job that took its place after it was published."""
        for planned, since_s in self._published.values():
            if planned.start_s <= now_s and planned.workload in self._state.planned_starts:
                self._blame(planned, since_s, lambda name: True)

    def _blame(self, planned: PlannedStart, since_s: int, is_late: Callable[[str], bool]) -> None:
        """Count it if a job that started there after the place was planned, and is in the way, was backfilled."""
        for place in planned.places:
            gpus = {share.gpu for share in place.devices}
            for held in self._state.allocations_on.get(place.node, {}).values():
                began_s = self._since_s.get(held.workload)
                is_there = not gpus.isdisjoint(share.gpu for share in held.devices)
                if began_s is None or began_s < since_s or held.workload in self._planned:
                    continue
                if is_there and is_late(held.workload):
                    self.result.broken_by_backfill += 1
                    return

    def _stays_beyond(self, at_s: int, name: str) -> bool:
        return self._since_s[name] + self._jobs[name].estimate_s > at_s


def _nodes() -> list[Event]:
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", MI300X_MIB) for number in range(GPUS))
    made = (Node(f"node-{n:03d}", cpu_milli=192_000, memory_mib=2**21, gpus=gpus) for n in range(NODES))
    return [QueueChanged(Queue("default")), *(NodeChanged(node) for node in made)]


def _workload(job: Job) -> Workload:
    """Up to a node one pod; beyond that a gang of pods that take a node each."""
    each = min(job.gpus, GPUS)
    role = Role(Request(1_000 * each, 8_192 * each, gpus=each), count=max(1, job.gpus // GPUS))
    return Workload(job.name, (role,), submitted_s=job.arrives_s, estimate_s=job.estimate_s)
