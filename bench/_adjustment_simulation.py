"""Recurring work on a virtual cluster: what it holds, what it uses, and how much longer it takes where it shares GPUs.

The slowdown model is on the pessimistic side of what is measured with MPS:
- A run has phases, each with a need of the GPU's processors and of its memory. Alone on its GPU it takes its nominal
  time.
- Tenants of one GPU always disturb each other (caches, memory bandwidth): DISTURBANCE times what the others need.
- Where the needs of all tenants add up to more than the GPU, each of them gets its part of it, whatever its share is:
  nobody is protected from a neighbour that bursts. Where shares are caps (`may_burst` False), a run that needs more
  than its share is slowed to it.
- A run that needs more GPU memory than its share has fails at that moment. It is run again from its beginning with what
  its owner asked for, and all of the lost time counts as slowdown.
"""

import heapq
import random
from collections.abc import Sequence
from typing import NamedTuple

from kaiwo.advise.right_size import SizeRule, amounts_of, right_size
from kaiwo.advise.run_uses import PodAmounts, RunUse, RunUses
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.model.events import QueueChanged
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from tests.worlds import World

MODEL = "H100"
DEVICE_MIB = GPU_MODELS[MODEL].memory_mib
DISTURBANCE = 0.03  # of one GPU's worth of neighbours
HOUR_S = 3600


class Phase(NamedTuple):
    work_s: float  # alone on its GPU
    need_milli: int
    mib: int


class Job(NamedTuple):
    name: str
    at_s: int
    kind: str
    request: Request
    phases: tuple[Phase, ...]
    pods: int = 1

    @property
    def nominal_s(self) -> float:
        return sum(phase.work_s for phase in self.phases)


class Outcome(NamedTuple):
    held_gpu_h: float
    used_gpu_h: float
    slowdown: dict[str, float]  # by job: 0.02 is 2 % longer than alone with all that it asked for
    mean_wait_s: float
    failed: int  # runs that had too little memory
    adjusted: int
    reached_s: int

    @property
    def wasted_gpu_h(self) -> float:
        return self.held_gpu_h - self.used_gpu_h


class _Run:
    def __init__(self, job: Job, request: Request, now_s: float, devices: Sequence[tuple[str, str]]) -> None:
        self.job, self.request, self.devices = job, request, devices
        self.given = amounts_of(request, DEVICE_MIB)
        self.phase, self.left_s, self.rate = 0, job.phases[0].work_s, 1.0
        self.since_s = self.counted_s = now_s
        self.peak_milli = self.peak_mib = 0
        self.version = 0

    @property
    def need(self) -> Phase:
        return self.job.phases[self.phase]


class Simulation:
    """`rule` None: every run gets what its owner asked for."""

    def __init__(self, jobs: Sequence[Job], rule: SizeRule | None, seed: int, nodes: int, gpus: int) -> None:
        self._jobs, self._rule = sorted(jobs, key=lambda job: (job.at_s, job.name)), rule
        self._noise = random.Random(seed + 7919)
        self._uses = RunUses()
        self._world = World(nodes=0)
        self._world.tell(QueueChanged(Queue("default", max_threads_milli=1000)))
        for number in range(nodes):
            self._world.node(f"node-{number}", gpus=gpus, model=MODEL)
        self._now_s = 0.0
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, tuple[Job, Request, int]] = {}
        self._on_device: dict[tuple[str, str], set[str]] = {}
        self._ends: list[tuple[float, str, int]] = []
        self._lost_s: dict[str, float] = {}
        self._held_milli_s = self._used_milli_s = self._waited_s = 0.0
        self._slowdown: dict[str, float] = {}
        self._failed = self._adjusted = 0

    def run(self) -> Outcome:
        arrived = 0
        while arrived < len(self._jobs) or self._runs or self._waiting:
            next_s = self._jobs[arrived].at_s if arrived < len(self._jobs) else float("inf")
            while self._ends and self._is_stale(self._ends[0]):
                heapq.heappop(self._ends)
            self._now_s = min(next_s, self._ends[0][0]) if self._ends else next_s
            assert self._now_s < float("inf"), f"nothing ever ends: {sorted(self._waiting)[:3]} wait"
            touched: set[tuple[str, str]] = set()
            while arrived < len(self._jobs) and self._jobs[arrived].at_s <= self._now_s:
                self._submit(self._jobs[arrived])
                arrived += 1
            while self._ends and (self._is_stale(self._ends[0]) or self._ends[0][0] <= self._now_s + 0.5):
                entry = heapq.heappop(self._ends)
                if not self._is_stale(entry):
                    touched |= self._end_phase(entry[1])
            touched |= self._schedule()
            self._set_rates(touched)
        jobs = max(1, len(self._jobs))
        return Outcome(
            self._held_milli_s / 1000 / HOUR_S, self._used_milli_s / 1000 / HOUR_S, self._slowdown,
            self._waited_s / jobs, self._failed, self._adjusted, int(self._now_s),
        )  # fmt: skip

    def _is_stale(self, entry: tuple[float, str, int]) -> bool:
        run = self._runs.get(entry[1])
        return run is None or run.version != entry[2]

    def _submit(self, job: Job, as_asked: bool = False) -> None:
        workload, request = self._workload(job, job.request), job.request
        if self._rule is not None and not as_asked:
            found = right_size(request, self._uses.of(run_key_of(workload)), self._rule, DEVICE_MIB)
            if found is not None and found.request.gpu_milli != request.gpu_milli:
                request = found.request
                self._adjusted += 1
        self._waiting[job.name] = job, request, int(self._now_s)
        self._world.now_s = int(self._now_s)
        self._world.submit(job.name, request=request, pods=job.pods, user="u", image=job.kind)

    def _workload(self, job: Job, request: Request) -> Workload:
        return Workload(f"default/{job.name}", (Role(request, count=job.pods),), user="u", image=job.kind)

    def _schedule(self) -> set[tuple[str, str]]:
        if not self._waiting:
            return set()
        self._world.now_s = int(self._now_s)
        touched: set[tuple[str, str]] = set()
        started = {start.workload for plan in self._world.settle() for start in plan.starts}
        for full in sorted(started):
            name = full.partition("/")[2]
            job, request, since_s = self._waiting.pop(name)
            pods = self._world.state.pods[full].values()
            devices = [(pod.node, share.gpu) for pod in pods for share in pod.devices]
            run = self._runs[name] = _Run(job, request, self._now_s, devices)
            self._waited_s += self._now_s - since_s
            for device in devices:
                self._on_device.setdefault(device, set()).add(name)
            touched |= set(devices) | self._begin_phase(run)
        return touched

    def _begin_phase(self, run: _Run) -> set[tuple[str, str]]:
        """Its memory grows at the beginning of a phase; without enough of it the run fails."""
        need = run.need
        run.peak_mib = max(run.peak_mib, min(need.mib, run.given.gpu_mib))
        if need.mib <= run.given.gpu_mib:
            return set()
        self._failed += 1
        self._lost_s[run.job.name] = self._lost_s.get(run.job.name, 0.0) + self._now_s - run.since_s
        touched = self._stop(run, failed=True)
        self._submit(run.job, as_asked=True)
        return touched

    def _end_phase(self, name: str) -> set[tuple[str, str]]:
        run = self._runs[name]
        self._count(run)
        run.phase += 1
        if run.phase < len(run.job.phases):
            run.left_s = run.need.work_s
            return set(run.devices) | self._begin_phase(run)
        took_s = self._now_s - run.since_s + self._lost_s.get(name, 0.0)
        self._slowdown[name] = took_s / run.job.nominal_s - 1
        return self._stop(run, failed=False)

    def _stop(self, run: _Run, failed: bool) -> set[tuple[str, str]]:
        self._count(run)
        name = run.job.name
        del self._runs[name]
        for device in run.devices:
            self._on_device[device].discard(name)
        self._world.finish(name)
        asked = amounts_of(run.job.request, DEVICE_MIB)
        peak = PodAmounts(run.peak_milli, run.peak_mib)
        use = RunUse(peak, run.given, asked, int(self._now_s - run.since_s), failed=failed)
        self._uses.add(run_key_of(self._workload(run.job, run.job.request)), use)
        return set(run.devices)

    def _set_rates(self, touched: set[tuple[str, str]]) -> None:
        for name in sorted({name for device in touched for name in self._on_device.get(device, ())}):
            run = self._runs[name]
            self._count(run)
            need, slowest = self._speed_need(run), 1.0
            for device in run.devices:
                others = sum(self._speed_need(self._runs[each]) for each in self._on_device[device] if each != name)
                crowd = max(1.0, (need + others) / 1000)
                slowest = min(slowest, 1 / (crowd * (1 + DISTURBANCE * min(1000, others) / 1000)))
            run.rate = slowest * need / run.need.need_milli
            run.version += 1
            heapq.heappush(self._ends, (self._now_s + run.left_s / run.rate, name, run.version))

    def _speed_need(self, run: _Run) -> float:
        """What it takes of a GPU: with a cap, no more than its share."""
        need = run.need.need_milli
        return need if self._rule is None or self._rule.may_burst else min(need, run.given.gpu_milli)

    def _count(self, run: _Run) -> None:
        """What it held and used since the last time, and what the sampler saw."""
        span_s = self._now_s - run.counted_s
        run.counted_s = self._now_s
        if span_s <= 0:
            return
        run.left_s -= span_s * run.rate
        busy = run.need.need_milli * run.rate
        seen = int(min(1000, busy * self._noise.uniform(0.97, 1.03)) // 10 * 10)  # in whole percent
        run.peak_milli = max(run.peak_milli, seen)
        self._held_milli_s += run.given.gpu_milli * len(run.devices) * span_s
        self._used_milli_s += busy * len(run.devices) * span_s
