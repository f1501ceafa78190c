"""The view of a cycle that was decided again.

In:    the plan of then, and why each node was chosen.   Out: a view with names and sentences.
"""

from kaiwo import explain
from kaiwo.api.views.cycle_detail import (
    CandidateView,
    CycleDetailView,
    CycleEvictionView,
    CycleStartView,
    CycleWaitView,
    ScoreTermView,
)
from kaiwo.decide.placement.node_choices import NodeChoice, ScoredNode
from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.plan import Plan, Start
from kaiwo.runtime.loop.replay_worker import ReplayAnswer

MOST = 200


def cycle_detail(number: int, answer: ReplayAnswer) -> CycleDetailView:
    plan = answer.then or Plan()
    choices = {(workload, pod): choice for workload, pod, choice in answer.choices}
    return CycleDetailView(
        number,
        answer.is_same,
        list(answer.differences),
        answer.nodes,
        answer.waiting,
        [_start(each, choices.get((each.workload, each.pod))) for each in plan.starts[:MOST]],
        [
            CycleEvictionView(each.workload, each.pod, each.node, each.cause.value, each.beneficiary)
            for each in plan.evictions[:MOST]
        ],
        [
            CycleWaitView(
                wait.queue, wait.shape, [explain.sentence(each) for each in explain.in_order_of_telling(wait.obstacles)]
            )
            for wait in plan.waits[:MOST]
        ],
    )


def _start(start: Start, choice: NodeChoice | None) -> CycleStartView:
    devices = [each.gpu if each.milli == WHOLE_MILLI else f"{each.gpu}:{each.milli}m" for each in start.devices]
    scored = () if choice is None else (choice.chosen, *choice.others)
    return CycleStartView(
        start.workload,
        start.pod,
        start.node,
        devices,
        0 if choice is None else choice.fits,
        choice is not None and choice.by_domain,
        [_candidate(each) for each in scored],
    )


def _candidate(scored: ScoredNode) -> CandidateView:
    terms = [ScoreTermView(term.name, term.score, term.weight) for term in scored.terms]
    return CandidateView(scored.node, scored.score, terms, explain.score_words(scored))
