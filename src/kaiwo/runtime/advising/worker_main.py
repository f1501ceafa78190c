"""The worker process that finds advice and plans capacity: one job on standard input, one answer on standard output.

It runs beside the scheduler with the lowest priority, and ends itself when it has used up its time. Plugins of others
take no part: they are asked by the scheduler only.
"""

import os
import resource
import sys
import time

import msgspec

from kaiwo.advise.capacity_plan import plan_capacity
from kaiwo.advise.find_advice import find_advice
from kaiwo.advise.run_uses import RunUses
from kaiwo.advise.verify_advice import AdviceQuestion
from kaiwo.decide.cycle import BUILTIN
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.runtime.advising.adjuster import size_rule
from kaiwo.runtime.advising.advising_jobs import AdvisingAnswer, AdvisingJob
from kaiwo.runtime.loop.learned_state import unpack_state

CPU_S = 90  # then the kernel ends it
SOFT_S = 30  # no further run begins after this
SOFT_WALL_S = 60  # nor after this, on a busy machine: who asks waits for no more than two minutes


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=AdvisingJob)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(job)))


def answer(job: AdvisingJob) -> AdvisingAnswer:
    until, wall_until = time.process_time() + SOFT_S, time.monotonic() + SOFT_WALL_S
    state = unpack_state(job.events, job.learned, BUILTIN)
    state.refresh_tables()
    question = AdviceQuestion(
        state, job.policy, BUILTIN, job.now_s, RunTimeForecast(job.forecast),
        RecentArrivals(job.arrivals.since_s, job.arrivals.workloads), RunUses(job.uses), size_rule(job.policy),
        lambda: time.process_time() < until and time.monotonic() < wall_until,
    )  # fmt: skip
    if job.choices is None:
        return AdvisingAnswer(advice=find_advice(question))
    return AdvisingAnswer(capacity=plan_capacity(question, job.choices, job.growth_percent))


if __name__ == "__main__":
    main()
