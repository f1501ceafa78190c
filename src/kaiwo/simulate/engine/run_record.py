"""What a simulated run leaves behind: who started, ended and was evicted when, and samples of the cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kaiwo.model.node import Node
from kaiwo.model.plan import Eviction
from kaiwo.simulate.engine.job import SimulatedJob, total_gpu_milli
from kaiwo.simulate.typical_requests import TypicalRequests, typical_requests
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.node_table import CPU, MILLI

SAMPLES = 200  # over the time in which jobs arrive


@dataclass(frozen=True, slots=True)
class ClusterSample:
    at_s: int
    used_milli: int
    capacity_milli: int
    waiting: int
    fragmented: float  # the part of the free GPU amounts that typical requests cannot use


@dataclass(slots=True)
class RunRecord:
    submitted: int = 0
    starts: dict[str, int] = field(default_factory=dict)  # by job: when it first started
    ended: dict[str, tuple[SimulatedJob, int]] = field(default_factory=dict)  # by job: itself, and when it ended
    samples: list[ClusterSample] = field(default_factory=list)
    evictions: list[tuple[int, str]] = field(default_factory=list)  # when, and the cause; one for each job
    restarts: int = 0  # starts after the first of a job
    failures: int = 0  # jobs that lost their node
    lost_gpu_milli_s: int = 0  # service that had to be repeated
    cycles: int = 0
    busy_milli_s: int = 0
    capacity_milli_s: int = 0
    busy_while_arriving_milli_s: int = 0  # the same until the last job arrived
    capacity_while_arriving_milli_s: int = 0
    begun_s: int = 0
    finished_s: int = 0
    unfinished: int = 0  # jobs that had not ended
    _used: int = 0
    _capacity: int = 0
    _last_arrival_s: int = 0
    _every_s: int = 1
    _next_sample_s: int = 0
    _typical: TypicalRequests | None = None
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def begin(self, nodes: Sequence[Node], jobs: Sequence[SimulatedJob]) -> None:
        self._capacity = total_gpu_milli(nodes)
        if jobs:
            self.begun_s = self._next_sample_s = jobs[0].submitted_s
            self._last_arrival_s = jobs[-1].submitted_s
            longest_s = sum(job.runs_s * job.gpu_milli for job in jobs) // max(1, self._capacity)
            self._every_s = max(1, max(jobs[-1].submitted_s - jobs[0].submitted_s, longest_s) // SAMPLES)
            self._typical = typical_requests(job.request for job in jobs)

    def advance(self, from_s: int, to_s: int) -> None:
        past_s = to_s - max(from_s, self.begun_s)
        if past_s > 0:
            self.busy_milli_s += self._used * past_s
            self.capacity_milli_s += self._capacity * past_s
        arriving_s = min(to_s, self._last_arrival_s) - max(from_s, self.begun_s)
        if arriving_s > 0:
            self.busy_while_arriving_milli_s += self._used * arriving_s
            self.capacity_while_arriving_milli_s += self._capacity * arriving_s

    def start(self, job: SimulatedJob, now_s: int, is_first: bool) -> None:
        self._used += job.gpu_milli
        if is_first:
            self.starts[job.name] = now_s
        else:
            self.restarts += 1

    def release(self, job: SimulatedJob) -> None:
        self._used -= job.gpu_milli

    def end(self, job: SimulatedJob, now_s: int) -> None:
        self.ended[job.name] = job, now_s

    def evict(self, job: SimulatedJob, eviction: Eviction, now_s: int) -> None:
        if (job.name, now_s) not in self._seen:
            self._seen.add((job.name, now_s))
            self.evictions.append((now_s, eviction.cause))

    def resize(self, by_milli: int) -> None:
        self._capacity += by_milli

    def sample(self, now_s: int, state: ClusterState, waiting: int) -> None:
        if now_s < self._next_sample_s:
            return
        self._next_sample_s = now_s + self._every_s
        self.samples.append(ClusterSample(now_s, self._used, self._capacity, waiting, self._fragmented(state)))

    def finish(self, now_s: int, left: "Iterable[object]") -> None:
        self.finished_s = now_s
        self.unfinished = len(list(left))

    def _fragmented(self, state: ClusterState) -> float:
        table, typical = state.nodes, self._typical
        if typical is None or not len(table.names):
            return 0.0
        rows = np.flatnonzero(table.schedulable)
        free = table.gpus[rows, MILLI]
        total = int(free.sum())
        if not total:
            return 0.0
        access = typical.access([table.models[model] if model >= 0 else "" for model in table.gpu_model[rows, 0]])
        return float(typical.fragments(table.free[rows, CPU], free, access).sum()) / total
