"""Why is this workload waiting, and what would start it now?

In:    the cluster state, a workload's name, the policy.
Out:   every obstacle in words, the position in the queue, a typed verdict, and the cheapest change.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.decide.make_room.preemption_cooldown import COOLDOWN_REASONS, cooldown_of
from kaiwo.decide.obstacles.find_obstacles import ObstacleFinder, with_verdicts
from kaiwo.decide.placement.shape_scores import ShapeScores
from kaiwo.explain.change_sentences import Proposal, propose
from kaiwo.explain.changes_that_evict import change_that_evicts, may_evict_others, raise_that_evicts
from kaiwo.explain.cheapest_change import ChangeSearch, cheapest_change
from kaiwo.explain.obstacle_sentences import remedy, sentence
from kaiwo.explain.planned_start_sentences import planned_start
from kaiwo.explain.possible_changes import PossibleChange
from kaiwo.explain.verify_change import Question
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.errors import NotFoundError
from kaiwo.model.obstacle import Obstacle, Reason, WhyVerdict
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import clock_words
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.snapshot import Snapshot
from kaiwo.snapshot.working_copy import WorkingCopy


class Explained(msgspec.Struct, frozen=True):
    """An obstacle in numbers and in words."""

    obstacle: Obstacle
    sentence: str
    remedy: str


class Why(msgspec.Struct, frozen=True):
    """The whole answer."""

    workload: str
    answer: str
    obstacles: tuple[Explained, ...]
    position: int
    ahead: int
    change: Proposal | None
    no_change: str  # what was found instead of a change, in full sentences
    as_of_s: int
    planned: str = ""  # when and where it is planned to start, and why then
    verdict: WhyVerdict = WhyVerdict.NOT_WAITING
    searched_all: bool = True  # False: not every possible change was tried


def obstacles_of(
    state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN
) -> tuple[Obstacle, ...]:
    """Everything that keeps a workload waiting, as of now; empty when it does not wait."""
    return _with_sound_plugins(Question(state, name, policy, now_s, plugins), _obstacles)


def why(state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN) -> Why:
    """The answer to `kaiwo why`."""
    if name not in state.workloads:
        raise NotFoundError(f"there is no living workload '{name}'; kaiwo get workloads lists them")
    return _with_sound_plugins(Question(state, name, policy, now_s, plugins), _answer)


Answer = TypeVar("Answer")

_FOUND_BY_CYCLES = (
    Reason.OVER_FAIR_SHARE,
    Reason.NOT_ENOUGH_RECLAIMABLE,
    Reason.NO_WAY_TO_RECLAIM,
    Reason.NO_WAY_TO_PREEMPT,
)


def _with_sound_plugins(question: Question, answer: Callable[[Question], Answer]) -> Answer:
    """A plugin that raises is set aside, as `decide` does it, and the question is asked again."""
    while True:
        try:
            return answer(question)
        except PluginFaultError as fault:
            question = replace(question, set_aside=(*question.set_aside, fault.plugin))


def _obstacles(question: Question) -> tuple[Obstacle, ...]:
    state, name, active = question.state, question.name, question.active
    state.refresh_tables()
    backlog = state.backlog
    if name in backlog.gated:
        return backlog.gated[name]
    if not backlog.is_queued(name):
        return ()
    found, _ = backlog.find(name)
    if found.key in backlog.to_try or backlog.try_all:
        return (Obstacle(Reason.NOT_TRIED),)
    if any(each.reason is Reason.PROMISED for each in found.obstacles):
        return found.obstacles  # nodes have room, and a planned start needs it: only a whole cycle can tell
    working = WorkingCopy(Snapshot(state, question.now_s))
    now = ObstacleFinder(state, active, ShapeScores(state, working.view, working, active)).obstacles(found)
    # Why nothing is taken from others only a whole cycle can tell: as of the last one.
    told = tuple(each for each in found.obstacles if each.reason in _FOUND_BY_CYCLES)
    return with_verdicts(found, now, told + _waits_out(question, found.obstacles))


def _waits_out(question: Question, told: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """The cycle tells it of one in the class; each has a time of its own."""
    found = cooldown_of(question.state, question.workload, question.policy, question.now_s)
    if found is None or not any(each.reason in COOLDOWN_REASONS for each in told):
        return ()
    until_s, obstacle = found
    return (msgspec.structs.replace(obstacle, need=until_s - question.now_s),)


def _answer(question: Question) -> Why:
    state, name, now_s = question.state, question.name, question.now_s
    obstacles = _obstacles(question)
    if not obstacles:
        return Why(name, _placed(state, name), (), 0, 0, None, "", now_s)
    explained = _explained(obstacles)
    found = cheapest_change(question)
    proposal = None if found.change is None else propose(state, name, found.change, _remark(found))
    if name in state.pods:
        pods = f"{len(state.pods[name])} of {question.workload.pods} pods"
        return Why(
            workload=name,
            answer=f"{_short(name)} is running with {pods}: {explained[0].sentence}",
            obstacles=explained,
            position=0,
            ahead=0,
            change=proposal,
            no_change="" if proposal else "It is already running, and will grow when there is room.",
            as_of_s=now_s,
            verdict=found.verdict if proposal else WhyVerdict.RUNNING,
            searched_all=found.is_complete,
        )
    verdict, no_change = (found.verdict, "") if proposal else _without_change(question, found)
    position = state.backlog.position(name)
    return Why(
        workload=name,
        answer=f"{_short(name)} is waiting: {explained[0].sentence}",
        obstacles=explained,
        position=position,
        ahead=max(0, position - 1),
        change=proposal,
        no_change=no_change,
        as_of_s=now_s,
        planned=planned_start(state, name, now_s),
        verdict=verdict,
        searched_all=found.is_complete,
    )


def _explained(obstacles: tuple[Obstacle, ...]) -> tuple[Explained, ...]:
    """In words; an obstacle that two roles share is listed once."""
    by_text: dict[tuple[str, str], Obstacle] = {}
    for each in obstacles:
        by_text.setdefault((sentence(each), remedy(each)), each)
    return tuple(Explained(each, *text) for text, each in by_text.items())


def _remark(found: ChangeSearch) -> str:
    """What a proposal says of the search."""
    if found.is_complete:
        return ""
    return f"not every change was tried, only {found.tried}, so a cheaper one may exist"


def _without_change(question: Question, found: ChangeSearch) -> tuple[WhyVerdict, str]:
    """What is said where no change was found that starts it at once."""
    match found.verdict:
        case WhyVerdict.BLOCKED:
            return found.verdict, "It can't start until the problem above is fixed."
        case WhyVerdict.NOT_TRIED_YET:
            return found.verdict, "The next cycle will try it; ask again in a moment."
        case WhyVerdict.UNDECIDED:
            text = (
                f"Undecided: not every possible change was tried. None of the {found.tried} that were tried would "
                "start it now without evicting other work."
            )
        case _:
            text = (
                "No single change of its size, GPU model, queue, limit or quota, and no single workload that you "
                "stop, would start it now without evicting other work."
            )
    change, more = _changes_that_evict(question)
    verdict = WhyVerdict.CHANGE_EVICTS if change and found.is_complete else found.verdict
    return verdict, " ".join([text, *more])


def _changes_that_evict(question: Question) -> tuple[PossibleChange | None, list[str]]:
    """A change after which other work is evicted for it, and sentences about those changes."""
    if not may_evict_others(question):
        return None, []
    found = change_that_evicts(question)
    if found.change is not None:
        return found.change, [_evicts(question, found.change)]
    another = "with another size, model or queue"
    text = f"No work would be evicted for it {another} either."
    if not found.is_complete:
        text = f"Whether other work would be evicted for it {another} was not tried."
    higher = raise_that_evicts(question)
    if higher.change is None:
        return None, [text]
    if higher.is_complete:
        return higher.change, [text, _evicts(question, higher.change)]
    raised = propose(question.state, question.name, higher.change).sentence
    return None, [text, f"Whether other work would be evicted for it if you {raised} was not tried."]


def _evicts(question: Question, change: PossibleChange) -> str:
    text = propose(question.state, question.name, change).sentence
    delay_s = question.workload.preemption_delay_s
    when = f" once its preemption delay of {rounded_duration(delay_s)} is over" if delay_s else ""
    return f"But if you {text}, other work will be evicted to make room for it{when}."


def _placed(state: ClusterState, name: str) -> str:
    nodes = sorted({pod.node for pod in state.pods.get(name, {}).values()})
    where = ", ".join(nodes[:4]) + (" and more" if len(nodes) > 4 else "")
    expires_s = state.workloads[name].expires_s
    until = f", and its allocation is granted until {clock_words(expires_s)}" if expires_s else ""
    placed = f"it has its pods on {where}" if nodes else "it is about to start"
    return f"{_short(name)} is not waiting: {placed}{until}"


def _short(name: str) -> str:
    """`default/train` is `train` to people."""
    return name.removeprefix("default/")
