"""The worker process: one job on standard input, one answer on standard output.

It runs beside the scheduler with the lowest priority, and ends itself when it has used up its time.
Plugins of others take no part: they are asked by the scheduler only.
"""

import os
import resource
import sys
import time
from collections import Counter

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.forecast.expected_starts import ForwardQuestion, SampledRunTimes, expected_starts, unended_runs
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_forward import Bounds, ForwardRun, run_forward
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.runtime.forecasting.forward_jobs import ForwardAnswer, ForwardJob, ForwardOutcome, ForwardQueueOutcome
from kaiwo.runtime.loop.learned_state import unpack_state
from kaiwo.snapshot.cluster_state import ClusterState

CPU_S = 60  # then the kernel ends it
SOFT_S = 15  # no further run begins after this


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ForwardJob)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(job)))


def answer(job: ForwardJob) -> ForwardAnswer:
    state = unpack_state(job.events, job.learned, BUILTIN)
    forecast, bounds = RunTimeForecast(job.forecast), Bounds(job.cycles, job.horizon_s)
    if job.changes is None:
        until = time.process_time() + SOFT_S
        arrivals = RecentArrivals(job.arrivals.since_s, job.arrivals.workloads)
        question = ForwardQuestion(state, job.policy, BUILTIN, job.now_s, forecast, arrivals)
        return ForwardAnswer(expected_starts(question, bounds, lambda: time.process_time() < until))
    before, _ = _outcome(state, job, forecast, bounds)
    changed = unpack_state(job.events, job.learned, BUILTIN)
    changed.patch(job.changes)
    if job.changed_policy is not None:
        job = msgspec.structs.replace(job, policy=job.changed_policy)
    after, starts = _outcome(changed, job, forecast, bounds)
    return ForwardAnswer(before=before, after=after, added={name: starts[name] for name in _added(job) & starts.keys()})


def _added(job: ForwardJob) -> set[str]:
    return {event.workload.name for event in job.changes or () if isinstance(event, WorkloadChanged)}


def _outcome(
    state: ClusterState, job: ForwardJob, forecast: RunTimeForecast, bounds: Bounds
) -> tuple[ForwardOutcome, dict[str, int]]:
    """What each queue gets, and when which workload starts. Every run time is its median."""
    run_time_of = SampledRunTimes(forecast, job.now_s, None, {}, unended_runs(state, job.now_s))
    bounds = bounds._replace(until_all_ended=True)
    found = run_forward(state, job.policy, BUILTIN, job.now_s, run_time_of, bounds)
    state.refresh_tables()
    gpus = int(state.nodes.gpu_total.sum()) // WHOLE_MILLI
    unknown = sum(not run_time_of(workload, 0) for workload in state.workloads.values())
    queues = _by_queue(state, found, job.now_s)
    return ForwardOutcome(queues, gpus, found.reached_s, found.is_whole, unknown), found.started_s


def _by_queue(state: ClusterState, found: ForwardRun, now_s: int) -> tuple[ForwardQueueOutcome, ...]:
    waiting: Counter[str] = Counter()
    started: dict[str, list[int]] = {}
    for name in sorted([*state.backlog.queued_names(), *state.backlog.gated]):
        queue = state.workloads[name].queue
        waiting[queue] += 1
        if name in found.started_s:
            started.setdefault(queue, []).append(found.started_s[name] - now_s)
    names = sorted({*waiting, *found.gpu_s, *found.evictions} - {""})
    return tuple(
        ForwardQueueOutcome(
            name,
            waiting[name],
            len(started.get(name, ())),
            sum(started.get(name, ())) // max(1, len(started.get(name, ()))),
            found.gpu_s.get(name, 0),
            found.evictions[name],
        )
        for name in names
    )


if __name__ == "__main__":
    main()
