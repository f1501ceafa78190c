"""How long work would wait with more nodes: the cluster runs forward with each choice, on the same expected demand.

In:    a question, and for each choice the nodes that it adds.   Out: for each choice the waits of all that waits now
       and of all that arrives within a day.
Never: counts work of unknown run time: it is left out, and its number told.

What arrives is the last day once more, begun at another hour in each of several futures, each with other run times.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.advise.verify_advice import AdviceQuestion
from kaiwo.forecast.expected_starts import SAMPLES, SampledRunTimes, unended_runs
from kaiwo.forecast.run_forward import Bounds, ForwardRun, run_forward
from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.node import Node
from kaiwo.model.workload import Workload

FUTURES = (1, 4, 7)  # of the samples of expected starts: short, middle and long run times
ARRIVALS_S = 86_400
MOST_ARRIVALS = 600
BOUNDS = Bounds(1_500, 3 * 86_400, until_all_ended=True)


class CapacityChoice(msgspec.Struct, frozen=True):
    """`nodes` empty: the cluster as it is."""

    name: str
    nodes: tuple[Node, ...] = ()


class CapacityOutlook(msgspec.Struct, frozen=True):
    """With one choice, over all futures."""

    name: str
    nodes: int  # added
    gpus: int  # of the cluster, with them
    p50_s: int
    p90_s: int
    mean_s: int
    started_permille: int  # of the work; what does not start waits until the end of the run
    used_permille: int  # of the GPU time until the end of the runs


class CapacityAnswer(msgspec.Struct, frozen=True):
    outlooks: tuple[CapacityOutlook, ...] = ()  # the cluster as it is comes first
    waiting: int = 0  # workloads that wait now
    arriving: int = 0  # that arrive within a day, on average of the futures
    unknown: int = 0  # that wait now, or arrived in the last day, and whose run time nobody knows
    is_whole: bool = True  # False: the time for it ended before all choices were tried


class _Future(NamedTuple):
    run_times: SampledRunTimes
    arrivals: Sequence[Workload]


def plan_capacity(
    question: AdviceQuestion, choices: Sequence[CapacityChoice], growth_percent: int = 0
) -> CapacityAnswer:
    """`growth_percent`: how much more work arrives than in the last day."""
    unended = unended_runs(question.state, question.now_s)
    futures, unknown = [], 0
    for sample in FUTURES:
        run_times = SampledRunTimes(question.forecast, question.now_s, sample, {}, unended)
        expected = question.arrivals.expected(question.now_s, sample * 1000 // SAMPLES, ARRIVALS_S)
        every = [each for _, each in zip(range(MOST_ARRIVALS), expected, strict=False)]
        known = [each for each in every if run_times(each, 0)]
        unknown = max(unknown, len(every) - len(known))
        futures.append(_Future(run_times, _grown(known, growth_percent)))
    waiting = [*question.state.backlog.queued_names(), *question.state.backlog.gated]
    unknown += sum(not futures[0].run_times(question.state.workloads[name], 0) for name in waiting)
    outlooks: list[CapacityOutlook] = []
    for choice in (CapacityChoice("as it is"), *choices):
        if outlooks and not question.may_go_on():
            break
        outlooks.append(_outlook(question, choice, futures, waiting))
    arriving = sum(len(future.arrivals) for future in futures) // len(futures)
    return CapacityAnswer(tuple(outlooks), len(waiting), arriving, unknown, len(outlooks) > len(choices))


def _grown(arrivals: Sequence[Workload], percent: int) -> list[Workload]:
    """Copies of some workloads come at the same time as they do, evenly spread; with less, as many are left out."""
    found, owed = [], 0
    for each in arrivals:
        owed += 100 + percent
        for copy in range(owed // 100):
            found.append(each if not copy else replace(each, name=f"{each.name}-more-{copy}"))
        owed %= 100
    return found


def _outlook(
    question: AdviceQuestion, choice: CapacityChoice, futures: Sequence[_Future], waiting: Sequence[str]
) -> CapacityOutlook:
    waits: list[int] = []
    started = used = possible = gpus = 0
    for future in futures:
        state = question.state.fork()
        state.patch([NodeChanged(node) for node in choice.nodes])
        run = run_forward(
            state, question.policy, question.plugins, question.now_s, future.run_times, BOUNDS, future.arrivals
        )
        state.refresh_tables()
        gpus = int(state.nodes.gpu_total.sum()) // WHOLE_MILLI
        waits += _waits(question, run, future, waiting)
        started += len(run.started_s) + len(run.arrivals_started_s)
        used += sum(run.gpu_s.values())
        possible += gpus * (run.reached_s - question.now_s)
    waits.sort()
    return CapacityOutlook(
        choice.name, len(choice.nodes), gpus, _quantile(waits, 50), _quantile(waits, 90),
        sum(waits) // max(1, len(waits)), 1000 * started // max(1, len(waits)), 1000 * used // max(1, possible),
    )  # fmt: skip


def _waits(question: AdviceQuestion, run: ForwardRun, future: _Future, waiting: Sequence[str]) -> list[int]:
    """From now, or from the arrival."""
    found = [run.started_s.get(name, run.reached_s) - question.now_s for name in waiting]
    for each in future.arrivals:
        found.append(max(0, run.arrivals_started_s.get(each.name, run.reached_s) - each.submitted_s))
    return found


def _quantile(waits: Sequence[int], percent: int) -> int:
    """The smallest wait that this part of the work does not exceed."""
    return waits[max(0, -(-len(waits) * percent // 100) - 1)] if waits else 0
