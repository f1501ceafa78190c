"""Run the cluster forward on a copy: the shipped `decide` on a virtual clock, with expected run times.

In:    a cluster state, a policy, how long each workload will run, and workloads that will arrive later.
Out:   who starts when, and what each queue gets.
Never: changes the state that it was given, or goes beyond its bounds. Work of unknown run time never ends.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from kaiwo.decide import decide
from kaiwo.model.events import Event, PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES, Phase, Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.assumed_events import assume
from kaiwo.snapshot.cluster_state import ClusterState


class RunTimeOf(Protocol):
    def __call__(self, workload: Workload, elapsed_s: int) -> int:
        """How long the workload still runs, after it has run for `elapsed_s`; 0: unknown."""


class Bounds(NamedTuple):
    """Where a run ends at the latest."""

    cycles: int = 400
    horizon_s: int = 14 * 86_400
    until_all_ended: bool = False  # False: until nothing waits any more


class ForwardRun(NamedTuple):
    started_s: dict[str, int]  # by workload that waited: when it first starts
    evictions: Counter[str]  # by queue: workloads that are stopped for others
    gpu_s: dict[str, int]  # by queue: GPU-seconds in use
    reached_s: int  # when something happened for the last time, or how far it ran if a bound ended it
    is_whole: bool  # False: a bound ended it
    arrivals_started_s: dict[str, int] = {}  # by arrival: when it first starts


def run_forward(
    state: ClusterState,
    policy: Policy,
    plugins: Registry,
    now_s: int,
    run_time_of: RunTimeOf,
    bounds: Bounds,
    arrivals: Sequence[Workload] = (),
) -> ForwardRun:
    """`arrivals` come at their `submitted_s`, in ascending order. They are no part of `started_s`."""
    return _Forward(state.fork(), policy, plugins, now_s, run_time_of, arrivals).run(bounds)


class _Forward:
    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        plugins: Registry,
        now_s: int,
        run_time_of: RunTimeOf,
        arrivals: Sequence[Workload],
    ) -> None:
        self._state, self._policy, self._plugins, self._run_time_of = state, policy, plugins, run_time_of
        self._now_s, self._is_busy = now_s, False
        self._arrivals, self._arrived = arrivals, 0
        self._to_come = {each.name for each in arrivals}
        self._arrivals_started_s: dict[str, int] = {}
        self._asked = {*state.backlog.queued_names(), *state.backlog.gated}  # they wait now and have not started
        self._ends: list[tuple[int, str]] = []
        self._end_of: dict[str, int] = {}  # by running workload: when it ends; entries of the heap may be out of date
        self._gpus: dict[str, int] = {}  # by running workload: milli-GPU
        self._dependents: dict[str, list[str]] = {}
        self._started_s: dict[str, int] = {}
        self._evictions: Counter[str] = Counter()
        self._gpu_ms: Counter[str] = Counter()  # by queue: milli-GPU-seconds
        self._last_s, self._last_gpu_ms = now_s, self._gpu_ms.copy()  # when something happened for the last time
        for name in sorted(state.pods):
            self._note_start(name)
        self._asked -= self._gpus.keys()  # who wants more pods has started already
        heapify(self._ends)
        for name, workload in state.workloads.items():
            for other in workload.after:
                self._dependents.setdefault(other, []).append(name)

    def run(self, bounds: Bounds) -> ForwardRun:
        begin_s, cycles, is_whole = self._now_s, 0, True
        while True:
            self._settle_one()
            cycles += 1
            next_s = self._next_s(bounds.until_all_ended)
            if not next_s:
                break
            if cycles >= bounds.cycles or next_s > begin_s + bounds.horizon_s:
                is_whole = False
                break
            self._advance(next_s)
        if not is_whole:
            self._note_change()
        # Work that can never start is looked at again after a day, when it is overdue: that is no part of the answer.
        gpu_s = {queue: amount // 1000 for queue, amount in sorted(self._last_gpu_ms.items())}
        starts = self._started_s
        return ForwardRun(starts, self._evictions, gpu_s, self._last_s, is_whole, self._arrivals_started_s)

    def _note_change(self) -> None:
        self._last_s, self._last_gpu_ms = self._now_s, self._gpu_ms.copy()

    def _settle_one(self) -> None:
        """One cycle, carried out at once: what is stopped is gone, and what starts runs."""
        state, now_s = self._state, self._now_s
        plan = decide(state.snapshot(now_s), self._policy, self._plugins)
        assumed = assume(state, plan, now_s)
        state.record_cycle(plan)
        state.patch(assumed)
        started = {start.workload for start in plan.starts}
        stopped = sorted({each.workload for each in plan.evictions})
        changes: list[Event] = [PodGone(each.workload, each.pod) for each in plan.evictions]
        for name in sorted(started):
            for pod in state.pods.get(name, {}).values():
                if pod.phase is Phase.ASSUMED:
                    changes.append(PodChanged(replace(pod, phase=Phase.RUNNING)))
        state.patch(changes)
        for name in stopped:
            self._evictions[state.workloads[name].queue] += 1
        for name in sorted(started | set(stopped)):
            self._note_start(name)
        if started or stopped:
            self._note_change()
        self._is_busy = bool(plan.starts or plan.evictions or plan.unfinished or plan.unclaimed)

    def _note_start(self, name: str) -> None:
        """The workload has other pods than before: note what it holds, and when it ends."""
        state = self._state
        pods = [pod for pod in state.pods.get(name, {}).values() if pod.phase in ACTIVE_PHASES]
        workload = state.workloads.get(name)
        self._gpus[name] = sum(share.charge_milli for pod in pods for share in pod.devices)
        if not pods or workload is None:
            self._gpus.pop(name)
            self._end_of.pop(name, None)
            return
        since_s = min(pod.since_s for pod in pods)
        if since_s >= self._now_s and name in self._asked:
            self._started_s[name] = self._now_s
            self._asked.remove(name)
        if name in self._to_come:
            self._arrivals_started_s.setdefault(name, self._now_s)
        if name in self._end_of:
            return
        left_s = self._run_time_of(workload, max(0, self._now_s - since_s))
        if left_s:
            self._end_of[name] = self._now_s + left_s
            heappush(self._ends, (self._end_of[name], name))

    def _next_s(self, until_all_ended: bool) -> int:
        """When something happens next; 0: never."""
        state, now_s = self._state, self._now_s
        if self._is_busy:
            return now_s + 1
        while self._ends and self._end_of.get(self._ends[0][1]) != self._ends[0][0]:
            heappop(self._ends)
        goes_on = self._asked or until_all_ended
        times = [self._ends[0][0]] if self._ends and goes_on else []
        if self._arrived < len(self._arrivals) and goes_on:
            times.append(self._arrivals[self._arrived].submitted_s)
        if state.backlog and goes_on:
            times += [at_s for at_s in (state.look_again_s, state.backlog.next_due_s or 0) if at_s > now_s]
        return max(now_s + 1, min(times)) if times else 0

    def _advance(self, to_s: int) -> None:
        for name, milli in self._gpus.items():
            workload = self._state.workloads.get(name)
            self._gpu_ms[workload.queue if workload is not None else ""] += milli * (to_s - self._now_s)
        self._now_s = to_s
        changes: list[Event] = []
        while self._ends and self._ends[0][0] <= to_s:
            end_s, name = heappop(self._ends)
            if self._end_of.get(name) != end_s:
                continue
            del self._end_of[name]
            self._gpus.pop(name, None)
            changes += [WorkloadGone(name), *(PodGone(name, pod) for pod in sorted(self._state.pods.get(name, {})))]
            for other in self._dependents.pop(name, ()):
                workload = self._state.workloads.get(other)
                if workload is not None:
                    after = tuple(each for each in workload.after if each != name)
                    changes.append(WorkloadChanged(replace(workload, after=after)))
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].submitted_s <= to_s:
            changes.append(WorkloadChanged(self._arrivals[self._arrived]))
            self._arrived += 1
        self._state.patch(changes)
        if changes:
            self._note_change()
