"""One simulated run of jobs on nodes: an order, a placement policy and a seed in, figures out."""

import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from kaiwo.forecast.recent_runs import name_without_numbers
from kaiwo.history.journal_writer import Journal
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import Event
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY, Policy
from kaiwo.model.queue import Queue
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.simulate.engine.event_engine import EventEngine, Scenario
from kaiwo.simulate.engine.impossible_jobs import impossible_job
from kaiwo.simulate.engine.job import SimulatedJob, seed_split
from kaiwo.simulate.engine.node_events import NodeEvent
from kaiwo.simulate.engine.run_figures import RunFigures, run_figures
from kaiwo.simulate.engine.service_orders import ORDERS, service_order
from kaiwo.simulate.placement_policies import POLICY_NAMES, placement_policy

SHIPPED = "default"  # Kaiwo's own policy with all its actions, bounds and shares
# The names of `--policy`: that, an order, or a placement policy with the order of arrival.
JOB_POLICIES = (SHIPPED, *ORDERS, *(name for name in POLICY_NAMES if name not in ORDERS))
SEED = "seed"
GPU_MIB, NODE_CPU_MILLI, NODE_MIB, NODE_PODS = 32 << 10, 1_000_000, 1 << 20, 256


class JobRunFigures(msgspec.Struct, frozen=True):
    """The figures of one run, and what was run."""

    workload: str
    policy: str
    seed: int
    restart_s: int
    took_s: float  # CPU time of the simulation
    peak_rss_mb: float
    figures: RunFigures


@dataclass(frozen=True, slots=True)
class JobRun:
    workload: str  # its name in the output
    nodes: tuple[Node, ...]
    jobs: tuple[SimulatedJob, ...]
    policy: str
    seed: int = 0  # 0: jobs of one instant in the order of the file; other seeds shuffle them
    restart_s: int = 0
    node_events: tuple[NodeEvent, ...] = ()
    until_s: int = 0
    journal: str = ""  # a folder for a journal of all decisions; empty: none is kept
    recorded: tuple[Event, ...] = ()  # queues and topologies of a recorded cluster
    rules: Policy | None = None  # a policy of the user, which `policy` names; None: `policy` is one of ours

    def run(self, report: Callable[[float], None] = lambda _: None) -> JobRunFigures:
        began_s = time.process_time()
        jobs = shuffle_ties(self.jobs, self.seed)
        if self.policy == SEED:
            jobs = [_with_seed_replicas(job) for job in jobs]
        journal = Journal(Path(self.journal) / "journal") if self.journal else None
        try:
            engine = EventEngine(self._scenario(jobs), journal)
            record = engine.run(jobs, lambda done, of: report(done / max(1, of)))
        finally:
            if journal is not None:
                journal.close()
        return JobRunFigures(
            workload=self.workload,
            policy=self.policy,
            seed=self.seed,
            restart_s=self.restart_s,
            took_s=round(time.process_time() - began_s, 2),
            peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            figures=run_figures(record),
        )

    def _scenario(self, jobs: Sequence[SimulatedJob]) -> Scenario:
        queues = tuple(Queue(name) for name in sorted({"default", *(job.queue for job in jobs)}))
        ships = self.rules is not None or self.policy == SHIPPED
        if ships:
            order, rules = service_order("fifo"), self.rules or DEFAULT_POLICY
            plugins, forgets = builtin_registry(), False
        elif self.policy in ORDERS:
            order = service_order(self.policy)
            actions = ("allocate", "preempt") if order.preempts else ("allocate",)
            # As published: these orders bound no wait.
            rules, plugins, forgets = Policy(actions=actions, promises=0, max_wait_s=0), builtin_registry(), False
        else:
            order = service_order("fifo")
            placing = placement_policy(self.policy, [job.request for job in jobs], self.seed)
            rules, plugins, forgets = placing.policy, placing.plugins, placing.forgets_scores
        return Scenario(
            self.nodes, rules, plugins, order, queues, self.node_events, self.restart_s, self.until_s, forgets,
            self.recorded, learns_run_times=ships,
        )  # fmt: skip


def check_job_run(policy: str, jobs: Sequence[SimulatedJob], nodes: Sequence[Node], where: str) -> None:
    """A sentence before any process starts."""
    if policy not in JOB_POLICIES:
        raise ConfigError(f"there is no policy '{policy}'; choose one of: {', '.join(JOB_POLICIES)}")
    if not jobs:
        raise ConfigError(f"{where} has no jobs")
    found = impossible_job([_with_seed_replicas(job) for job in jobs] if policy == SEED else jobs, nodes)
    if found is not None:
        job, lack = found
        line = f", line {job.line}" if job.line else ""
        raise ConfigError(f"{where}{line}: {job.name} would never start: it asks for {lack}")


def shuffle_ties(jobs: Sequence[SimulatedJob], seed: int) -> list[SimulatedJob]:
    """Among jobs that arrive at one instant the name decides, so a seed gives out other names."""
    if not seed:
        return list(jobs)
    numbers = list(range(len(jobs)))
    random.Random(seed).shuffle(numbers)
    return [
        replace(job, name=f"{number:06d}-{job.name}", stem=name_without_numbers(job.name))
        for number, job in zip(numbers, jobs, strict=True)
    ]


def equal_nodes(count: int, gpus: int = 8, model: str = "V100") -> tuple[Node, ...]:
    """A cluster of equal nodes on which only GPUs are short."""
    devices = tuple(Gpu(f"gpu-{number}", model, GPU_MIB) for number in range(gpus))
    width = len(str(count))
    return tuple(
        Node(f"node-{number:0{width}d}", NODE_CPU_MILLI, NODE_MIB, NODE_PODS, devices) for number in range(1, count + 1)
    )


def _with_seed_replicas(job: SimulatedJob) -> SimulatedJob:
    if job.gpus <= job.request.gpus:
        return job
    pods, each = seed_split(job.gpus)
    return replace(job, pods=pods, request=msgspec.structs.replace(job.request, gpus=each), template=None)
