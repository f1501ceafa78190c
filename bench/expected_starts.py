"""How far expected starts are from the actual ones, on Philly's jobs through the shipped scheduler.

In:    Philly's jobs. The first part only teaches the forecast of run times. On the jobs after it, on which no constant
       of the expected starts was chosen, the shipped scheduler runs on a virtual clock. Every few hours the start of
       every waiting job is asked for. `--traces` names the folder; `../shared/traces` by default.
Out:   the mean error, against the guess `position in the line / rate of starts on the last day`; how many actual starts
       lie in their range; and what one question costs.
"""

import argparse
import heapq
import json
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from msgspec.structs import replace

from bench._forecast_traces import philly_jobs
from bench._queue_simulation import Job
from bench.forecast import TRACES
from kaiwo.decide.cycle import BUILTIN
from kaiwo.forecast.expected_starts import ExpectedStart, ForwardQuestion, expected_starts
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_forward import Bounds
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.events import Event, NodeChanged, PodChanged, PodGone, QueueChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Role, Workload
from kaiwo.runtime.forecasting.forward_worker import CYCLES, HORIZON_S
from kaiwo.runtime.loop.cycle_runner import CycleRunner

TEACHING = (0.4, 0.6, 0.8)  # parts of the trace, each followed by other jobs
JOBS, GPUS = 3_000, 400  # a little less than the jobs need, so that lines form
EVERY_S, DAY_S, PER_NODE = 4 * 3600, 86_400, 8
MAX_PART = 0.5  # of the guess's error


class Asked(NamedTuple):
    name: str
    at_s: int
    expected: ExpectedStart | None
    guess_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with the traces (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs to play (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=GPUS, help="size of the cluster (default: %(default)s)")
    options = parser.parse_args()
    if not (options.traces / "philly").is_dir():
        print(json.dumps({"is_measured": False, "why": "the traces were not found: name their folder with --traces"}))
        return 0
    jobs = philly_jobs(options.traces)
    parts = {f"after {part:.0%}": measure(jobs, part, options.jobs, options.gpus) for part in TEACHING}
    sums = [sum(each[key] * each["starts"] for each in parts.values()) for key in ("error_min", "guess_error_min")]
    print(json.dumps({**parts, "error_part_of_guess": round(sums[0] / sums[1], 3)}, indent=None if options.json else 2))
    return 1 if sums[0] > MAX_PART * sums[1] else 0


def measure(jobs: list[Job], part: float, count: int, gpus: int) -> dict[str, Any]:
    cut = int(len(jobs) * part)
    taught = Taught(jobs[:cut])
    played = Play(jobs[cut : cut + count], gpus, taught).run()
    known = [each for each in played.asked if each.expected is not None]
    errors = [abs(played.started_s(each) - each.expected.middle_s) for each in known if each.expected]
    guesses = [abs(played.started_s(each) - each.guess_s) for each in known]
    held = [
        each.expected.low_s <= played.started_s(each) <= (each.expected.high_s or sys.maxsize)
        for each in known
        if each.expected
    ]
    return {
        "jobs": count,
        "gpus": gpus,
        "questions": played.questions,
        "starts": len(known),
        "unknown": len(played.asked) - len(known),
        "error_min": round(mean(errors) / 60, 1),
        "guess_error_min": round(mean(guesses) / 60, 1),
        "in_range": round(mean(held), 3),
        "question_cpu_s": round(mean(played.costs_s), 2),
    }


class Taught:
    """A forecast that learns jobs when they end, as if none had waited."""

    def __init__(self, jobs: list[Job]) -> None:
        self.forecast = RunTimeForecast()
        self._ends: list[tuple[int, int, Job]] = []
        for number, job in enumerate(jobs):
            self.learn_until(job.submitted_s)
            heapq.heappush(self._ends, (job.submitted_s + job.run_s, number, job))

    def learn_until(self, now_s: int) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            _, _, ended = heapq.heappop(self._ends)
            self.forecast.learn(ended.key, ended.run_s, ended.submitted_s)


class Play:
    """The jobs through the shipped scheduler; every few hours the starts of all that wait are asked for."""

    def __init__(self, jobs: list[Job], gpus: int, taught: Taught) -> None:
        self._taught, self._forecast, self._runner = taught, taught.forecast, CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        # The forecast is asked by user, name and queue: a job of the trace has only its queue.
        self._jobs = {f"philly/{number}": job for number, job in enumerate(jobs)}
        self._arrivals = list(self._jobs)
        self._recent = RecentArrivals(jobs[0].submitted_s)
        self._ends: list[tuple[int, str]] = []
        self._end_of: dict[str, int] = {}  # by running job; entries of the heap may be out of date
        self.starts: dict[str, list[int]] = {}  # a job that was stopped for another starts again
        self.asked: list[Asked] = []
        self.costs_s: list[float] = []
        self.questions = self.evictions = 0
        devices = tuple(Gpu(f"gpu-{at}", "MI300X", 196_608) for at in range(PER_NODE))
        nodes = [Node(f"node-{at:03d}", 1_000_000, 10_000_000, gpus=devices) for at in range(gpus // PER_NODE)]
        queues = sorted({job.key.queue for job in jobs})
        self._runner.state.patch([*(QueueChanged(Queue(name)) for name in queues), *map(NodeChanged, nodes)])

    def run(self) -> "Play":
        at, now_s = 0, self._jobs[self._arrivals[0]].submitted_s
        ask_s = now_s + EVERY_S
        while at < len(self._arrivals) or self._ends:
            times = [self._jobs[self._arrivals[at]].submitted_s] if at < len(self._arrivals) else []
            times += [end_s for end_s, _ in self._ends[:1]]
            times += [self._runner.state.look_again_s] if self._runner.state.look_again_s else []
            now_s = max(now_s, min(times))
            self._end(now_s)
            while at < len(self._arrivals) and self._jobs[self._arrivals[at]].submitted_s <= now_s:
                self._submit(self._arrivals[at])
                at += 1
            self._decide(now_s)
            if now_s >= ask_s and self._runner.state.backlog:
                self._ask(now_s)
                ask_s = now_s + EVERY_S
        return self

    def _submit(self, name: str) -> None:
        job = self._jobs[name]
        each = min(PER_NODE, job.gpus)
        role = Role(Request(gpus=each), count=-(-job.gpus // each))
        workload = Workload(name, (role,), job.key.queue, submitted_s=job.submitted_s)
        self._recent.add(workload)
        self._runner.state.patch([WorkloadChanged(workload)])

    def _end(self, now_s: int) -> None:
        self._taught.learn_until(now_s)
        gone: list[Event] = []
        while self._ends and self._ends[0][0] <= now_s:
            end_s, name = heapq.heappop(self._ends)
            if self._end_of.get(name) != end_s:
                continue
            del self._end_of[name]
            gone += [WorkloadGone(name), *(PodGone(name, pod) for pod in sorted(self._runner.state.pods[name]))]
            job = self._jobs[name]
            self._forecast.learn(job.key, job.run_s, self.starts[name][-1])
        self._runner.state.patch(gone)

    def _decide(self, now_s: int) -> None:
        """What a plan stops is gone at once, and what it starts runs."""
        while (decision := self._runner.cycle(now_s)) is not None:
            plan, state = decision.plan, self._runner.state
            changes: list[Event] = [PodGone(each.workload, each.pod) for each in plan.evictions]
            for name in sorted({each.workload for each in plan.evictions}):
                self.evictions += self._end_of.pop(name, None) is not None
            for name in dict.fromkeys(start.workload for start in plan.starts):
                pods = [pod for pod in state.pods[name].values() if pod.phase is Phase.ASSUMED]
                changes += [PodChanged(replace(pod, phase=Phase.RUNNING)) for pod in pods]
                self.starts.setdefault(name, []).append(now_s)
                self._end_of[name] = now_s + self._jobs[name].run_s
                heapq.heappush(self._ends, (self._end_of[name], name))
            state.patch(changes)
            if not changes:
                return

    def _ask(self, now_s: int) -> None:
        began = time.process_time()
        question = ForwardQuestion(
            self._runner.state, self._runner.policy, BUILTIN, now_s, self._forecast, self._recent
        )
        found = expected_starts(question, Bounds(CYCLES, HORIZON_S))
        self.costs_s.append(time.process_time() - began)
        self.questions += 1
        recent = sum(at_s > now_s - DAY_S for each in self.starts.values() for at_s in each)
        waiting = sorted(self._runner.state.backlog.queued_names(), key=self._submitted)
        for position, name in enumerate(waiting, start=1):
            self.asked.append(Asked(name, now_s, found.get(name), now_s + position * DAY_S / max(1, recent)))

    def started_s(self, asked: Asked) -> int:
        """When the job next started after it was asked for."""
        starts = self.starts[asked.name]
        return starts[bisect_right(starts, asked.at_s)]

    @property
    def _submitted(self) -> Callable[[str], tuple[int, str]]:
        return lambda name: (self._jobs[name].submitted_s, name)


if __name__ == "__main__":
    sys.exit(main())
