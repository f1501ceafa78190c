"""Read the jobs of a journal: what a Kaiwo was asked for, when, and how long it ran, on the cluster that it had.

In:    the home folder of a Kaiwo, or of a simulated run.   Out: its nodes, queues and topologies, and a job for each
workload. Unlike a replay, nothing that was decided then counts: another policy may start the jobs elsewhere and later.
Time begins with the first cycle. What ran at that moment arrives then, with what was left of it.

A workload arrives when it may start: not while it is held or waits for others. Its run time is that of its last
attempt. Where the cluster did not say how long it ran, it counts until the next cycle: a journal has no idle ones.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.history.journal_entries import Base, Batch, Cycle, Entry
from kaiwo.history.journal_reader import JournalReader
from kaiwo.model.errors import ConfigError
from kaiwo.model.events import (
    Event,
    NodeChanged,
    NodeGone,
    PodChanged,
    PodGone,
    QueueChanged,
    QueueGone,
    TopologyChanged,
    TopologyGone,
    WorkloadChanged,
    WorkloadGone,
)
from kaiwo.model.node import Node
from kaiwo.model.workload import Phase, Workload
from kaiwo.simulate.engine.job import SimulatedJob

UNKNOWN_S = -1


class RecordedWorkloads(NamedTuple):
    nodes: tuple[Node, ...]
    setting: tuple[Event, ...]  # queues and topologies
    jobs: tuple[SimulatedJob, ...]
    cut_short: int  # jobs that still ran when the journal ended: they run as long as they had
    unknown: int  # workloads that never ran in it, and are left out
    notes: tuple[str, ...] = ()  # what is lost in the journal


def is_journal(path: Path) -> bool:
    return (path / "journal").is_dir()


def journal_jobs(home: Path) -> RecordedWorkloads:
    reader = JournalReader(home / "journal")
    recording = _Recording()
    for entry in reader.entries():
        recording.read(entry)
    if recording.begun_s < 0:
        raise ConfigError("; ".join([f"{home / 'journal'} has no cycles, so it lists no jobs", *reader.notes]))
    return recording.close()._replace(notes=reader.notes)


class _Run:
    """A workload of the journal, from its arrival until it is gone."""

    __slots__ = ("arrived_s", "began_s", "ended_s", "is_gone", "pods", "ran_s", "workload")

    def __init__(self, workload: Workload) -> None:
        self.workload, self.is_gone = workload, False
        self.pods: set[str] = set()  # that run
        self.arrived_s = workload.submitted_s if _may_start(workload) else UNKNOWN_S
        self.began_s = self.ended_s = UNKNOWN_S  # of its last attempt
        self.ran_s = 0  # how long it ran, as its cluster said


class _Recording:
    """Events have no time of their own: what changed before a cycle counts from that cycle."""

    def __init__(self) -> None:
        self.begun_s = UNKNOWN_S  # of the first cycle
        self._now_s = 0
        self._nodes: dict[str, Node] = {}
        self._queues: dict[str, QueueChanged] = {}
        self._topologies: dict[str, TopologyChanged] = {}
        self._runs: dict[str, _Run] = {}  # by name; a name may be used again
        self._all: list[_Run] = []
        self._touched: list[_Run] = []  # since the last cycle

    def read(self, entry: Entry) -> None:
        match entry:
            case Base(events):
                there = {event.workload.name for event in events if isinstance(event, WorkloadChanged)}
                for name in sorted(self._runs.keys() - there):  # it went while nothing was written
                    self._end(self._runs.pop(name))
                self._apply(events)
            case Batch(events):
                self._apply(events)
            case Cycle(head):
                self._now_s = head.now_s
                self.begun_s = head.now_s if self.begun_s < 0 else self.begun_s
                for run in self._touched:
                    self._settle(run)
                self._touched.clear()

    def close(self) -> RecordedWorkloads:
        self._now_s = max([self._now_s, *(run.began_s for run in self._all)])
        for run in self._touched:  # after the last cycle
            self._settle(run)
        found = [self._job(run, number) for number, run in enumerate(self._all)]
        jobs = tuple(job for job in found if job is not None)
        cut_short = sum(run.began_s >= 0 and not run.ran_s and run.ended_s < 0 for run in self._all)
        setting: tuple[Event, ...] = (*self._queues.values(), *self._topologies.values())
        return RecordedWorkloads(tuple(self._nodes.values()), setting, jobs, cut_short, len(found) - len(jobs))

    def _apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, WorkloadChanged | WorkloadGone | PodChanged | PodGone):
                self._apply_to_run(event)
                continue
            match event:
                case NodeChanged(node):
                    self._nodes[node.name] = replace(node, ready=True, cordoned=False, reason="")
                case NodeGone(name):
                    self._nodes.pop(name, None)
                case QueueChanged(queue):
                    self._queues[queue.name] = event
                case QueueGone(name):
                    self._queues.pop(name, None)
                case TopologyChanged(topology):
                    self._topologies[topology.name] = event
                case TopologyGone(name):
                    self._topologies.pop(name, None)

    def _apply_to_run(self, event: WorkloadChanged | WorkloadGone | PodChanged | PodGone) -> None:
        match event:
            case WorkloadChanged(workload):
                if workload.name not in self._runs:
                    self._runs[workload.name] = _Run(workload)
                    self._all.append(self._runs[workload.name])
                run = self._runs[workload.name]
                run.workload = workload
            case WorkloadGone(name) if name in self._runs:
                run = self._runs.pop(name)
                run.ran_s = event.run_s
                self._end(run)
            case PodChanged(pod) if pod.phase is Phase.RUNNING and pod.workload in self._runs:
                run = self._runs[pod.workload]
                if not run.pods:
                    run.began_s, run.ended_s = pod.since_s, UNKNOWN_S
                run.pods.add(pod.name)
            case PodGone(workload, name) if workload in self._runs:
                run = self._runs[workload]
                run.pods.discard(name)
            case _:
                return
        self._touched.append(run)

    def _end(self, run: _Run) -> None:
        run.is_gone = True
        self._touched.append(run)

    def _settle(self, run: _Run) -> None:
        if run.arrived_s < 0 and _may_start(run.workload):
            run.arrived_s = self._now_s
        if run.began_s >= 0 and run.ended_s < 0 and (run.is_gone or not run.pods):
            run.ended_s = self._now_s

    def _job(self, run: _Run, number: int) -> SimulatedJob | None:
        """None: it never ran, so nobody knows how long it would have."""
        if run.began_s < 0:
            return None
        ended_s = run.began_s + run.ran_s if run.ran_s else run.ended_s if run.ended_s >= 0 else self._now_s
        if ended_s < self.begun_s:
            return None
        runs_s = ended_s - max(run.began_s, self.begun_s)
        arrived_s = run.arrived_s if 0 <= run.arrived_s <= run.began_s else run.began_s
        workload = _without_a_past(run.workload)
        return SimulatedJob(
            name=f"{workload.name}-{number:06d}",
            submitted_s=max(0, arrived_s - self.begun_s),
            runs_s=max(1, runs_s),
            request=workload.roles[0].request,
            pods=workload.pods,
            queue=workload.queue,
            group=workload.queue,
            user=workload.user,
            priority=workload.priority,
            template=workload,
        )


def _may_start(workload: Workload) -> bool:
    return not workload.held and not workload.after


def _without_a_past(workload: Workload) -> Workload:
    """What it asked for. All its pods must run, because the run time is that of all of them."""
    roles = tuple(replace(role, minimum=-1) for role in workload.roles)
    return replace(
        workload, roles=roles, groups=(), after=(), after_failed=(), held=False, not_before_s=0, not_before_why="",
        checkpoint_s=0, broken_since_s=0, expires_s=0, may_go=-1, stays_why="", reservation="", array_slots=0,
    )  # fmt: skip
