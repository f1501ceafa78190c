"""Run the cluster forward without and with a change, and compare: only what helps, and harms nobody, is advised.

In:    a question and a changed copy of its state.   Out: the gain, or None.
A change helps if work starts sooner, or if the same work holds less. It harms somebody if a queue's work waits longer
in sum, or if more work is stopped for others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from kaiwo.advise.advice import Gain, Outlook
from kaiwo.advise.right_size import SizeRule
from kaiwo.advise.run_uses import RunUses
from kaiwo.forecast.expected_starts import SampledRunTimes, unended_runs
from kaiwo.forecast.recent_arrivals import RecentArrivals
from kaiwo.forecast.run_forward import Bounds, ForwardRun, run_forward
from kaiwo.forecast.run_time_forecast import RunTimeForecast
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState

BOUNDS = Bounds(400, 7 * 86_400, until_all_ended=True)
ARRIVALS_S = 86_400  # later arrivals are left out
MOST_ARRIVALS = 300
NOW_S = 60  # what starts within this time starts now
HARM_PERCENT = 2  # of a queue's waiting time: below it, other turns are no harm
LEAST_SAVED_S = 60  # of waiting, or of holding a GPU


class AdviceQuestion(NamedTuple):
    """`state` is not changed."""

    state: ClusterState
    policy: Policy
    plugins: Registry
    now_s: int
    forecast: RunTimeForecast
    arrivals: RecentArrivals
    uses: RunUses
    rule: SizeRule
    may_go_on: Callable[[], bool] = lambda: True
    bounds: Bounds = BOUNDS


class AdviceTrial(NamedTuple):
    """A changed copy of the cluster, and what arrives there."""

    state: ClusterState
    arrivals: Sequence[Workload]


class Verifier:
    """Keeps the run without any change, with which all are compared."""

    def __init__(self, question: AdviceQuestion) -> None:
        self._question = question
        self._unended = unended_runs(question.state, question.now_s)
        self._queue_of = {name: workload.queue for name, workload in question.state.workloads.items()}

    @cached_property
    def arrivals(self) -> list[Workload]:
        """The last day once more, as far as its run times are known."""
        question, run_time_of = self._question, self._run_times()
        found = question.arrivals.expected(question.now_s, 0, ARRIVALS_S)
        return [each for each in found if run_time_of(each, 0)][:MOST_ARRIVALS]

    @cached_property
    def before(self) -> ForwardRun:
        return self._run(AdviceTrial(self._question.state, self.arrivals))

    def gain(self, trial: AdviceTrial) -> Gain | None:
        """None: it does not help, or harms somebody."""
        before, after, now_s = self.before, self._run(trial), self._question.now_s
        until_s = max(before.reached_s, after.reached_s)
        old, new = (self._waits(run, until_s) for run in (before, after))
        sooner = sum(new[name] + NOW_S <= old[name] for name in old)
        later = sum(new[name] >= old[name] + NOW_S for name in old)
        unknown = sum(not self._run_times()(each, 0) for each in trial.state.workloads.values())
        gain = Gain(self._outlook(before, old), self._outlook(after, new), sooner, later, until_s - now_s, unknown)
        helps = gain.saved_wait_s >= LEAST_SAVED_S or (gain.saved_gpu_s >= LEAST_SAVED_S and gain.saved_wait_s >= 0)
        if before.is_whole != after.is_whole and gain.saved_wait_s < LEAST_SAVED_S:
            return None  # runs of different lengths hold different amounts
        return gain if helps and not self._harms(gain, old, new) else None

    def _harms(self, gain: Gain, old: dict[str, int], new: dict[str, int]) -> bool:
        if gain.after.evictions > gain.before.evictions or gain.after.started < gain.before.started:
            return True
        longer: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for name, wait_s in old.items():
            longer[self._queue_of[name]] += new[name] - wait_s
            total[self._queue_of[name]] += wait_s
        return any(more > NOW_S and more * 100 > total[queue] * HARM_PERCENT for queue, more in longer.items())

    def _waits(self, run: ForwardRun, until_s: int) -> dict[str, int]:
        """By workload that waits now or arrives: from now or its arrival on."""
        now_s, backlog = self._question.now_s, self._question.state.backlog
        found = {name: run.started_s.get(name, until_s) - now_s
                 for name in (*backlog.queued_names(), *backlog.gated)}  # fmt: skip
        for each in self.arrivals:
            found[each.name] = max(0, run.arrivals_started_s.get(each.name, until_s) - each.submitted_s)
            self._queue_of[each.name] = each.queue
        return found

    def _outlook(self, run: ForwardRun, waits: dict[str, int]) -> Outlook:
        now_s = self._question.now_s
        return Outlook(
            len(waits),
            len(run.started_s) + len(run.arrivals_started_s),
            sum(waits.values()),
            sum(at_s <= now_s + NOW_S for at_s in run.started_s.values()),
            sum(run.gpu_s.values()),
            sum(run.evictions.values()),
        )

    def _run(self, trial: AdviceTrial) -> ForwardRun:
        question = self._question
        run_time_of = self._run_times()
        arguments = (question.policy, question.plugins, question.now_s, run_time_of, question.bounds)
        return run_forward(trial.state, *arguments, trial.arrivals)

    def _run_times(self) -> SampledRunTimes:
        """Every run time is its median."""
        question = self._question
        return SampledRunTimes(question.forecast, question.now_s, None, {}, self._unended)
