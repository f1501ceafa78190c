"""Say what would happen to work that is not submitted yet: whether it starts now, whom it stops, or why it waits.

In:    the cluster state, and workloads.   Out: one outcome for each, as `decide` would have it.
Never: changes the state; cycles run on a fork.
"""

from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.decide.cycle import BUILTIN, decide
from kaiwo.decide.placement.node_choices import NodeChoice, NodeChoices, ScoredNode
from kaiwo.decide.placement.shape_scores import OPEN_WEIGHT
from kaiwo.explain.changes_that_evict import CYCLES, MAX_STEPS, after_plan
from kaiwo.explain.obstacle_order import in_order_of_telling
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.explain.why import obstacles_of, protected
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.obstacle import Reason
from kaiwo.model.plan import Start
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Workload, role_of
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState


class TrialSubmission(NamedTuple):
    """What would happen to one workload."""

    workload: str
    nodes: tuple[str, ...]  # where it would start now; empty: it would wait
    stopped: tuple[str, ...]  # the workloads that would be stopped for it
    reason: str  # why it would wait
    choice: str = ""  # why its first pod would go where it goes


def try_submission(
    state: ClusterState, workloads: list[Workload], policy: Policy, now_s: int, plugins: Registry = BUILTIN
) -> list[TrialSubmission]:
    """The next cycles after the submission, in which evicted work is gone at once."""
    fork, short = state.fork(), replace(policy, steps=min(policy.steps, MAX_STEPS))
    fork.patch([WorkloadChanged(each) for each in workloads])
    names = [each.name for each in workloads]
    stopped: dict[str, dict[str, None]] = {name: {} for name in names}
    chosen: dict[str, str] = {}
    for _ in range(CYCLES):
        choices = NodeChoices()
        plan = decide(fork.snapshot(now_s), short, plugins, (), choices)
        for start in plan.starts:
            if start.workload in stopped and start.workload not in chosen:
                chosen[start.workload] = _why_there(fork, start, choices)
        for each in plan.evictions:
            if each.beneficiary in stopped:
                stopped[each.beneficiary][each.workload] = None
        fork = after_plan(fork, plan, now_s)
        if not plan.starts and not plan.evictions and not plan.unfinished:
            break
    found = []
    for name in names:
        nodes = tuple(sorted({pod.node for pod in fork.pods.get(name, {}).values()}))
        obstacles = () if nodes else in_order_of_telling(obstacles_of(fork, name, policy, now_s, plugins))
        is_known = obstacles and obstacles[0].reason is not Reason.NOT_TRIED
        reason = sentence(obstacles[0]) if is_known else "" if nodes else "it would not be tried at once"
        kept = protected(fork, name, policy, now_s, plugins) if nodes else ""
        choice = "; ".join(filter(None, (chosen.get(name, ""), kept)))
        found.append(TrialSubmission(name, nodes, tuple(stopped[name]), reason, choice))
    return found


def _why_there(state: ClusterState, start: Start, choices: NodeChoices) -> str:
    workload = state.workloads[start.workload]
    choice = choices.of(start, state.request_of(workload, role_of(workload, start.pod)))
    return choice_sentence(choice) if choice is not None else ""


def choice_sentence(choice: NodeChoice) -> str:
    """`node-3 is the best of 8 nodes with room: 25,000 = pack 500 x 10 + steady-nodes 1,000 x 20; next: ...`."""
    if choice.fits < 2 or not choice.others:
        return ""
    chosen, second = choice.chosen, choice.others[0]
    if choice.by_domain:
        return f"{chosen.node} is in the domain that was chosen first; it scores {score_words(chosen)}"
    found = f"{chosen.node} is the best of {choice.fits} nodes with room: {score_words(chosen)}"
    if second.score == chosen.score:
        return f"{found}; {second.node} is as good, and the first name wins"
    return f"{found}; next: {second.node} with {score_words(second)}"


def score_words(scored: ScoredNode) -> str:
    """`unused-domains -1, then 5,000 = pack 500 x 10`: what precedes all scores of plugins, and their sum."""
    before = [f"{term.name} {term.score:,}" for term in scored.terms if term.weight >= OPEN_WEIGHT]
    terms = [term for term in scored.terms if term.score and term.weight < OPEN_WEIGHT]
    total = f"{sum(term.score * term.weight for term in terms):,}"
    if terms:
        total += f" = {' + '.join(f'{term.name} {term.score:,} x {term.weight:,}' for term in terms)}"
    return ", then ".join((*before, total))
