"""When each waiting workload is expected to start: the queue runs forward several times, each with other run times.

In:    a cluster state and the forecast of run times.   Out: by waiting workload, a time and a range.
Never: guesses: where run times are unknown, so is the start.

Nothing is random: each run takes one quantile of each workload's run time, by a digest of its name, so equal states
give equal answers.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kaiwo.forecast.duration_buckets import Counts, bucket_of, quantile_s
from kaiwo.forecast.recent_runs import name_without_numbers
from kaiwo.forecast.run_forward import Bounds, run_forward
from kaiwo.forecast.run_time_forecast import RunKey, RunTimeForecast
from kaiwo.model.digest import digest
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState

SAMPLES = 9  # of so many runs, the earliest and the latest start hold eight of ten in between
PPM = 1_000_000
BOUNDS = Bounds()


class ExpectedStart(msgspec.Struct, frozen=True):
    """Four of five times it starts between `low_s` and `high_s`."""

    low_s: int
    middle_s: int
    high_s: int = 0  # 0: unknown; in some runs it had not started when they ended


def run_key_of(workload: Workload, image: str = "") -> RunKey:
    milli = sum(role.request.least_milli * role.count for role in workload.roles)
    stem = name_without_numbers(workload.name.partition("/")[2])
    return RunKey(workload.user, stem, workload.queue, image, milli)


class SampledRunTimes:
    """One possible future: each workload has one quantile of its run time, spread evenly over all futures.

    `sample` is the number of the future; None: every run time is its median.
    """

    def __init__(
        self, forecast: RunTimeForecast, now_s: int, sample: int | None, known: dict[RunKey, Counts | None]
    ) -> None:
        self._forecast, self._now_s, self._sample, self._known = forecast, now_s, sample, known

    def __call__(self, workload: Workload, elapsed_s: int) -> int:
        left_s = self._left_s(workload, elapsed_s)
        limit_s = workload.time_limit_s
        if limit_s:
            left_s = min(left_s or limit_s, max(1, limit_s - elapsed_s))
        return left_s

    def _left_s(self, workload: Workload, elapsed_s: int) -> int:
        key = run_key_of(workload)
        if key not in self._known:
            self._known[key] = self._forecast.distribution(key, self._now_s)
        distribution = self._known[key]
        if distribution is None:
            expected_s = workload.estimate_s or workload.learned_s
            return max(1, expected_s - elapsed_s) if expected_s else 0
        if elapsed_s:
            distribution = distribution.copy()
            distribution[: bucket_of(elapsed_s)] = 0
            if not distribution.any():
                return elapsed_s  # longer than all before it: as long again
        return max(1, quantile_s(distribution, self._part_ppm(workload.name)) - elapsed_s)

    def _part_ppm(self, name: str) -> int:
        """From 1/18 to 17/18 in nine steps, which each workload passes in its own order."""
        if self._sample is None:
            return PPM // 2
        first = int(digest(name)[:8], 16)
        return (2 * ((first + self._sample * (1 + first // SAMPLES % 2 * 3)) % SAMPLES) + 1) * PPM // (2 * SAMPLES)


class ForwardQuestion(NamedTuple):
    state: ClusterState
    policy: Policy
    plugins: Registry
    now_s: int
    forecast: RunTimeForecast


def expected_starts(
    question: ForwardQuestion, bounds: Bounds = BOUNDS, may_go_on: Callable[[], bool] = lambda: True
) -> dict[str, ExpectedStart]:
    """By waiting workload. `may_go_on` is asked before each run."""
    known: dict[RunKey, Counts | None] = {}
    starts: dict[str, list[int]] = {}
    state, policy, plugins, now_s, forecast = question
    runs = 0
    for sample in range(SAMPLES):
        if not may_go_on():
            break
        run_time_of = SampledRunTimes(forecast, now_s, sample, known)
        for name, at_s in run_forward(state, policy, plugins, now_s, run_time_of, bounds).started_s.items():
            starts.setdefault(name, []).append(at_s)
        runs += 1
    return {name: found for name, each in starts.items() if (found := _range_of(sorted(each), runs)) is not None}


def _range_of(starts: list[int], runs: int) -> ExpectedStart | None:
    """Runs in which it did not start count as later than all others."""
    middle = (runs - 1) // 2
    if len(starts) <= middle:
        return None
    return ExpectedStart(starts[0], starts[middle], starts[-1] if len(starts) == runs else 0)
