"""When each waiting workload is expected to start: the queue runs forward several times, each with other run times.

In:    a cluster state, the forecast of run times, and what arrived lately.
Out:   by waiting workload, a time and a range.
Never: guesses: where run times are unknown, so is the start.

Work that comes later may go first: in each run the arrivals of the last day come again, beginning at another hour.

Nothing is random: each run takes one quantile of each workload's run time, by a digest of its name, so equal states
give equal answers.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kaiwo.forecast.duration_buckets import Counts, quantile_beyond_s, quantile_s
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.recent_runs import name_without_numbers
from kaiwo.forecast.run_forward import Bounds, run_forward
from kaiwo.forecast.run_time_forecast import RunKey, RunTimeForecast, UnendedRuns
from kaiwo.model.digest import digest
from kaiwo.model.policy import Policy
from kaiwo.model.workload import ACTIVE_PHASES, Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState

SAMPLES = 9  # of so many runs, the earliest and the latest start hold eight of ten in between
TOGETHER = 3  # one workload in three takes the same quantile as the others of these
ARRIVALS_S = 3 * 86_400  # later arrivals are left out
PPM = 1_000_000
BOUNDS = Bounds()


class ExpectedStart(msgspec.Struct, frozen=True):
    """Four of five times it starts between `low_s` and `high_s`."""

    low_s: int
    middle_s: int
    high_s: int = 0  # 0: unknown; in some runs it had not started when they ended


def run_key_of(workload: Workload) -> RunKey:
    milli = sum(role.request.least_milli * role.count for role in workload.roles)
    stem = name_without_numbers(workload.name.rpartition("/")[2])
    return RunKey(workload.user, stem, workload.queue, workload.image, milli)


class SampledRunTimes:
    """One possible future: each workload has one quantile of its run time, spread evenly over all futures.

    `sample` is the number of the future; None: every run time is its median.
    """

    def __init__(
        self,
        forecast: RunTimeForecast,
        now_s: int,
        sample: int | None,
        known: dict[RunKey, Counts | None],
        unended: UnendedRuns,
    ) -> None:
        self._forecast, self._now_s, self._sample, self._known = forecast, now_s, sample, known
        self._unended = unended

    def __call__(self, workload: Workload, elapsed_s: int) -> int:
        left_s = self._left_s(workload, elapsed_s)
        limit_s = workload.time_limit_s
        if limit_s:
            left_s = min(left_s or limit_s, max(1, limit_s - elapsed_s))
        return left_s

    def _left_s(self, workload: Workload, elapsed_s: int) -> int:
        key = run_key_of(workload)
        if key not in self._known:
            self._known[key] = self._forecast.distribution(key, self._now_s, self._unended)
        distribution = self._known[key]
        if distribution is None:
            expected_s = workload.estimate_s or workload.learned_s
            return max(1, expected_s - elapsed_s) if expected_s else 0
        part_ppm = self._part_ppm(workload.name)
        if not elapsed_s:
            return max(1, quantile_s(distribution, part_ppm))
        ends_s = quantile_beyond_s(distribution, elapsed_s, part_ppm)
        return max(1, ends_s - elapsed_s) if ends_s else elapsed_s  # longer than all before it: as long again

    def _part_ppm(self, name: str) -> int:
        """From 1/18 to 17/18 in nine steps. Most workloads pass them in their own order, the others together.

        If each had its own order, long and short would cancel out, and all futures would be alike. Run times that
        differ from what is expected often do so together.
        """
        if self._sample is None:
            return PPM // 2
        first = int(digest(name)[:8], 16)
        if first % TOGETHER == 0:
            return (2 * self._sample + 1) * PPM // (2 * SAMPLES)
        first //= TOGETHER
        return (2 * ((first + self._sample * (1 + first // SAMPLES % 2 * 3)) % SAMPLES) + 1) * PPM // (2 * SAMPLES)


def unended_runs(state: ClusterState, now_s: int) -> UnendedRuns:
    """What runs now, and since when."""
    found = UnendedRuns(now_s)
    for name in sorted(state.pods):
        running = [pod.since_s for pod in state.pods[name].values() if pod.phase in ACTIVE_PHASES]
        if running and name in state.workloads:
            found.add(run_key_of(state.workloads[name]), min(running))
    return found


class ForwardQuestion(NamedTuple):
    state: ClusterState
    policy: Policy
    plugins: Registry
    now_s: int
    forecast: RunTimeForecast
    arrivals: RecentArrivals


def expected_starts(
    question: ForwardQuestion, bounds: Bounds = BOUNDS, may_go_on: Callable[[], bool] = lambda: True
) -> dict[str, ExpectedStart]:
    """By waiting workload. `may_go_on` is asked before each run."""
    known: dict[RunKey, Counts | None] = {}
    starts: dict[str, list[int]] = {}
    state, policy, plugins, now_s, forecast, arrivals = question
    unended, runs = unended_runs(state, now_s), 0
    for sample in range(SAMPLES):
        if not may_go_on():
            break
        run_time_of = SampledRunTimes(forecast, now_s, sample, known, unended)
        to_come = arrivals.expected(now_s, sample * 1000 // SAMPLES, min(ARRIVALS_S, bounds.horizon_s))
        coming = [each for each in to_come if run_time_of(each, 0)]
        for name, at_s in run_forward(state, policy, plugins, now_s, run_time_of, bounds, coming).started_s.items():
            starts.setdefault(name, []).append(at_s)
        runs += 1
    return {name: found for name, each in starts.items() if (found := _range_of(sorted(each), runs)) is not None}


def _range_of(starts: list[int], runs: int) -> ExpectedStart | None:
    """Runs in which it did not start count as later than all others."""
    middle = (runs - 1) // 2
    if len(starts) <= middle:
        return None
    return ExpectedStart(starts[0], starts[middle], starts[-1] if len(starts) == runs else 0)
