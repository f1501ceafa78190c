"""A queue of jobs in front of one pool of GPUs, simulated event by event: what is a good guess of run times worth?

In:    jobs in the order of their submission, the number of GPUs, and a ranking.   Out: the wait of every job.

A job starts when it is first in the order and enough GPUs are free; nothing overtakes it. Jobs of one kind (virtual
cluster and GPUs on Philly) keep the order of their submission, so a ranking ranks kinds. It learns from jobs that have
ended. A rank is computed again at most once a minute of simulated time, as the scheduler updates waiting workloads, and
at least once an hour, because a forecast that no run confirms fades.
"""

import heapq
from collections import deque
from typing import NamedTuple, Protocol

from kaiwo.forecast.run_time_forecast import RunKey, RunTimeForecast

REFRESH_S, RENEW_S = 60, 3600


class Job(NamedTuple):
    submitted_s: int
    run_s: int
    gpus: int
    key: RunKey


class Ranking(Protocol):
    """Which kind of job comes first: that with the lowest rank."""

    def kind(self, number: int, job: Job) -> object: ...
    def rank(self, job: Job, now_s: int) -> int: ...
    def ended(self, job: Job, now_s: int) -> None: ...


class FirstComeFirstServed:
    def kind(self, number: int, job: Job) -> object:
        return None

    def rank(self, job: Job, now_s: int) -> int:
        return 0

    def ended(self, job: Job, now_s: int) -> None: ...


class ShortestFirst(FirstComeFirstServed):
    """Knows every run time."""

    def kind(self, number: int, job: Job) -> object:
        return job.run_s

    def rank(self, job: Job, now_s: int) -> int:
        return job.run_s


class GroupMean:
    """The mean run time of the jobs of the same queue and size that have ended; without any, of all jobs."""

    def __init__(self) -> None:
        self._sums: dict[object, list[int]] = {None: [0, 0]}

    def kind(self, number: int, job: Job) -> object:
        return job.key.queue, job.gpus

    def rank(self, job: Job, now_s: int) -> int:
        total_s, runs = self._sums.get(self.kind(0, job)) or self._sums[None]
        return total_s // runs if runs else 0

    def ended(self, job: Job, now_s: int) -> None:
        for key in (self.kind(0, job), None):
            sums = self._sums.setdefault(key, [0, 0])
            sums[0] += job.run_s
            sums[1] += 1


class Learned:
    """The order of the shipped forecast."""

    def __init__(self) -> None:
        self._forecast = RunTimeForecast()

    def kind(self, number: int, job: Job) -> object:
        return job.key

    def rank(self, job: Job, now_s: int) -> int:
        return self._forecast.rank_s(job.key, now_s)

    def ended(self, job: Job, now_s: int) -> None:
        self._forecast.learn(job.key, job.run_s, now_s - job.run_s)


def waits_s(jobs: list[Job], gpus: int, ranking: Ranking) -> list[int]:
    free, next_job, waits = gpus, 0, [0] * len(jobs)
    ends: list[tuple[int, int]] = []
    lines: dict[object, deque[int]] = {}
    order: list[tuple[int, int, object]] = []  # rank, number of the first job, kind; entries may be out of date
    ranks: dict[object, tuple[int, int]] = {}  # by kind: rank, when it was computed
    stale: set[object] = set()
    renewed_s = 0

    def push(kind: object, now_s: int) -> None:
        first = lines[kind][0]
        rank, made_s = ranks.get(kind, (0, -REFRESH_S))
        if kind not in ranks or (kind in stale and now_s - made_s >= REFRESH_S):
            rank = ranking.rank(jobs[first], now_s)
            ranks[kind] = rank, now_s
            stale.discard(kind)
        heapq.heappush(order, (rank, first, kind))

    while next_job < len(jobs) or ends:
        now_s = min(jobs[next_job].submitted_s if next_job < len(jobs) else 1 << 60, ends[0][0] if ends else 1 << 60)
        while ends and ends[0][0] <= now_s:
            number = heapq.heappop(ends)[1]
            free += jobs[number].gpus
            ranking.ended(jobs[number], now_s)
            kind = ranking.kind(number, jobs[number])
            stale.add(kind)
            if lines.get(kind) and now_s - ranks[kind][1] >= REFRESH_S:
                push(kind, now_s)
        while next_job < len(jobs) and jobs[next_job].submitted_s <= now_s:
            kind = ranking.kind(next_job, jobs[next_job])
            lines.setdefault(kind, deque()).append(next_job)
            if len(lines[kind]) == 1:
                push(kind, now_s)
            next_job += 1
        if now_s - renewed_s >= RENEW_S:
            renewed_s = now_s
            stale.update(lines)
            for kind in list(lines):
                push(kind, now_s)
        while order:
            rank, first, kind = order[0]
            line = lines.get(kind)
            if not line or line[0] != first or ranks[kind][0] != rank:
                heapq.heappop(order)
                continue
            if jobs[first].gpus > free:
                break
            heapq.heappop(order)
            line.popleft()
            free -= jobs[first].gpus
            waits[first] = now_s - jobs[first].submitted_s
            heapq.heappush(ends, (now_s + jobs[first].run_s, first))
            if line:
                push(kind, now_s)
            else:
                del lines[kind]
    return waits
