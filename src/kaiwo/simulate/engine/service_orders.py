"""Orders by service: whose turn it is, and who is preempted, by the GPU time that jobs have had or still need.

In:    jobs that arrive and end, and the service of each so far.   Out: a priority for each job.
The shipped preemption compares priorities and nothing else. So an order only says what they are, and the scheduler's
own rules decide who is stopped for whom: only work of strictly lower priority, so that no two jobs stop each other in
turn.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from kaiwo.forecast.run_time_forecast import RunKey, RunTimeForecast
from kaiwo.model.errors import ConfigError
from kaiwo.simulate.engine.ending_odds import EndingOdds, age_level, level_ends_s
from kaiwo.simulate.engine.job import SimulatedJob

LEVELS_PER_OCTAVE = (
    16  # of a priority: run times that differ by less than 4 % are equal, and keep their order of arrival
)
REFRESH_S = 60  # a learned priority is computed again at most once a minute
RENEW_S = 3600  # and at least once an hour, because a forecast that no run confirms fades
_STEPS = tuple(round(2 ** (20 + step / LEVELS_PER_OCTAVE)) for step in range(1, LEVELS_PER_OCTAVE + 1))


def octave_level(amount: int) -> int:
    """The base-2 logarithm of a positive amount, in steps of 1/16, by integers alone: the same on every machine."""
    amount = max(1, amount)
    whole = amount.bit_length() - 1
    part = amount << (20 - whole) if whole <= 20 else amount >> (whole - 20)
    return whole * LEVELS_PER_OCTAVE + sum(1 for step in _STEPS if step <= part)


class ServiceOrder(Protocol):
    """One order; it keeps what it has learned."""

    name: str
    preempts: bool

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        """The higher, the earlier. `left_s` is the truth; only an order that may know it looks at it."""

    def falls_in_s(self, job: SimulatedJob, attained_s: int) -> int:
        """After how much more service its priority falls; 0: never."""

    def ended(self, job: SimulatedJob, now_s: int) -> None: ...

    def changed_groups(
        self, now_s: int, active: Callable[[], Iterable[tuple[SimulatedJob, int]]]
    ) -> frozenset[str] | None:
        """The groups whose priorities have changed; None: all of them. `active` has jobs and their service so far."""


class FirstComeFirstServed:
    """In the order of arrival; whatever fits beside that starts, too."""

    name, preempts = "fifo", False

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        return job.priority

    def falls_in_s(self, job: SimulatedJob, attained_s: int) -> int:
        return 0

    def ended(self, job: SimulatedJob, now_s: int) -> None:
        pass

    def changed_groups(
        self, now_s: int, active: Callable[[], Iterable[tuple[SimulatedJob, int]]]
    ) -> frozenset[str] | None:
        return frozenset()


class ShortestJobFirst(FirstComeFirstServed):
    """Knows all run times, and stops nobody."""

    name, preempts = "shortest-job-first", False

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        return -octave_level(left_s)


class ShortestRemainingService(FirstComeFirstServed):
    """Knows all run times: the job that needs the fewest GPU-seconds more comes first."""

    name, preempts = "shortest-remaining-service", True

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        return -octave_level(left_s * max(1, job.gpu_milli // 10))


class GroupMean(FirstComeFirstServed):
    """The mean run time of the jobs of the same group and size that have ended; without any, of all jobs."""

    name, preempts = "group-mean", False

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], list[int]] = {}
        self._total, self._runs = 0, 0
        self._stale: set[str] = set()
        self._refreshed_s = 0

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        total_s, runs = self._sums.get((job.group, job.gpu_milli)) or (self._total, self._runs)
        return -octave_level(total_s // runs) if runs else 0

    def ended(self, job: SimulatedJob, now_s: int) -> None:
        sums = self._sums.setdefault((job.group, job.gpu_milli), [0, 0])
        sums[0] += job.runs_s
        sums[1] += 1
        self._total, self._runs = self._total + job.runs_s, self._runs + 1
        self._stale.add(job.group)

    def changed_groups(
        self, now_s: int, active: Callable[[], Iterable[tuple[SimulatedJob, int]]]
    ) -> frozenset[str] | None:
        if now_s - self._refreshed_s < REFRESH_S:
            return frozenset()
        changed, self._stale, self._refreshed_s = frozenset(self._stale), set(), now_s
        return changed


class LearnedRunTime(FirstComeFirstServed):
    """The order of the shipped forecast: the mean that it has learned from the jobs that have ended."""

    name, preempts = "learned", False

    def __init__(self) -> None:
        self._forecast = RunTimeForecast()
        self._stale: set[str] = set()
        self._refreshed_s = self._renewed_s = 0
        self._ranks: dict[RunKey, int] = {}
        self._now_s = 0

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        key = _run_key(job)
        if key not in self._ranks:
            rank_s = self._forecast.rank_s(key, self._now_s)
            self._ranks[key] = -octave_level(rank_s) if rank_s else 0
        return self._ranks[key]

    def ended(self, job: SimulatedJob, now_s: int) -> None:
        self._forecast.learn(_run_key(job), job.runs_s, now_s - job.runs_s)
        self._stale.add(job.group)
        self._now_s = now_s

    def changed_groups(
        self, now_s: int, active: Callable[[], Iterable[tuple[SimulatedJob, int]]]
    ) -> frozenset[str] | None:
        self._now_s = now_s
        if now_s - self._renewed_s >= RENEW_S:
            self._renewed_s = self._refreshed_s = now_s
            self._stale.clear()
            self._ranks.clear()
            return None
        if now_s - self._refreshed_s < REFRESH_S:
            return frozenset()
        changed, self._stale, self._refreshed_s = frozenset(self._stale), set(), now_s
        self._ranks = {key: rank for key, rank in self._ranks.items() if key.queue not in changed}
        return changed


class LeastAttainedService(FirstComeFirstServed):
    """Blind to durations: first the job that is likeliest to end soon for the GPUs that it holds.

    How likely a job of some age ends is learned from the jobs that have ended and those that have not, by size. Before
    any has ended this is plain least attained service: the odds fall with the age.
    """

    name, preempts = "least-attained-service", True

    def __init__(self) -> None:
        self._odds = EndingOdds()

    def priority(self, job: SimulatedJob, attained_s: int, left_s: int) -> int:
        return self._odds.priority(job.gpu_milli, age_level(attained_s))

    def falls_in_s(self, job: SimulatedJob, attained_s: int) -> int:
        return level_ends_s(age_level(attained_s)) - attained_s

    def ended(self, job: SimulatedJob, now_s: int) -> None:
        self._odds.ended(job.gpu_milli, age_level(job.runs_s))

    def changed_groups(
        self, now_s: int, active: Callable[[], Iterable[tuple[SimulatedJob, int]]]
    ) -> frozenset[str] | None:
        if not self._odds.is_due:
            return frozenset()
        self._odds.learn((job.gpu_milli, age_level(attained_s)) for job, attained_s in active())
        return None


ORDERS: dict[str, Callable[[], ServiceOrder]] = {
    "fifo": FirstComeFirstServed,
    "least-attained-service": LeastAttainedService,
    "shortest-remaining-service": ShortestRemainingService,
    "shortest-job-first": ShortestJobFirst,
    "learned": LearnedRunTime,
    "group-mean": GroupMean,
}


def service_order(name: str) -> ServiceOrder:
    if name not in ORDERS:
        raise ConfigError(f"there is no order '{name}'; choose one of: {', '.join(ORDERS)}")
    return ORDERS[name]()


def _run_key(job: SimulatedJob) -> RunKey:
    return RunKey(job.user, "", job.group or job.queue, "", job.gpu_milli)
