"""Answer why a workload is waiting, and what would start it now."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from kaiwo.decide.cycle import BUILTIN
from kaiwo.explain.change_sentences import Proposal, propose, short_name
from kaiwo.explain.changes_that_evict import change_that_evicts, may_evict_others, raise_that_evicts
from kaiwo.explain.cheapest_change import ChangeSearch, cheapest_change
from kaiwo.explain.current_obstacles import CurrentObstacles
from kaiwo.explain.gang_sentences import below_minimum, kept_places
from kaiwo.explain.obstacle_order import Lasting, in_order_of_telling, lasting
from kaiwo.explain.obstacle_sentences import remedy, sentence
from kaiwo.explain.planned_start_sentences import planned_start
from kaiwo.explain.possible_changes import PossibleChange
from kaiwo.explain.trials.protected_room import protected_room
from kaiwo.explain.verify_change import WhatIf
from kaiwo.model.amounts import rounded_duration
from kaiwo.model.errors import NotFoundError
from kaiwo.model.obstacle import Obstacle, Reason, WhyVerdict
from kaiwo.model.policy import Policy
from kaiwo.model.reservation import clock_words
from kaiwo.plugins.guarded_calls import PluginFaultError
from kaiwo.plugins.registry import Registry
from kaiwo.snapshot.cluster_state import ClusterState


class Explained(msgspec.Struct, frozen=True):
    """An obstacle in words."""

    obstacle: Obstacle
    sentence: str
    remedy: str


class Why(msgspec.Struct, frozen=True):
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
    return _with_sound_plugins(WhatIf(state, name, policy, now_s, plugins), _obstacles)


def why(state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN) -> Why:
    if name not in state.workloads:
        raise NotFoundError(f"no workload '{name}' is waiting or running; kaiwo get workloads lists them")
    return _with_sound_plugins(WhatIf(state, name, policy, now_s, plugins), _answer)


def protected(state: ClusterState, name: str, policy: Policy, now_s: int, plugins: Registry = BUILTIN) -> str:
    """What the place of running work protects, as of now; empty if that is nothing."""
    return _with_sound_plugins(WhatIf(state, name, policy, now_s, plugins), protected_room)


Answer = TypeVar("Answer")


def _with_sound_plugins(what_if: WhatIf, answer: Callable[[WhatIf], Answer]) -> Answer:
    """A plugin that raises is set aside, as in `decide`, and the question is asked again."""
    while True:
        try:
            return answer(what_if)
        except PluginFaultError as fault:
            what_if = replace(what_if, set_aside=(*what_if.set_aside, fault.plugin))


def _obstacles(what_if: WhatIf) -> tuple[Obstacle, ...]:
    state, name, active = what_if.state, what_if.name, what_if.active
    state.refresh_tables()
    backlog = state.backlog
    if name in backlog.gated:
        return backlog.gated[name]
    if not backlog.is_queued(name):
        return ()
    found = backlog.class_of(name)
    if found.key in backlog.to_try or backlog.try_all:
        return (Obstacle(Reason.NOT_TRIED),)
    return CurrentObstacles(state, active, what_if.policy, what_if.now_s).of_workload(found, what_if.workload)


def _answer(what_if: WhatIf) -> Why:
    state, name, now_s = what_if.state, what_if.name, what_if.now_s
    obstacles = _obstacles(what_if)
    if not obstacles:
        return Why(name, _placed(what_if), (), 0, 0, None, "", now_s)
    explained = _explained(obstacles)
    found = cheapest_change(what_if)
    remark = f"not every change was tried, only {found.tried}, so a cheaper one may exist"
    proposal, verdict, no_change = None, found.verdict, ""
    if found.change is not None:
        proposal = propose(state, name, found.change, "" if found.is_complete else remark)
    elif name in state.pods:
        verdict, no_change = WhyVerdict.RUNNING, "It is already running, and will grow when there is room."
        if name in state.below_minimum:
            no_change = "Its missing pods will start when there is room."
    else:
        verdict, no_change = _without_change(what_if, found)
    doing, position, planned = "waiting", state.backlog.position(name), planned_start(state, name, now_s)
    if name in state.pods:
        doing, position, planned = f"running with {len(state.pods[name])} of {what_if.workload.pods} pods", 0, ""
        doing = below_minimum(state, name, what_if.policy, now_s) or doing
    return Why(
        workload=name,
        answer=f"{short_name(name)} is {doing}: {explained[0].sentence}",
        obstacles=explained,
        position=position,
        ahead=max(0, position - 1),
        change=proposal,
        no_change=no_change,
        as_of_s=now_s,
        planned=planned,
        verdict=verdict,
        searched_all=found.is_complete,
    )


def _explained(obstacles: tuple[Obstacle, ...]) -> tuple[Explained, ...]:
    """In words; an obstacle that two roles share is listed once."""
    by_text: dict[tuple[str, str], Obstacle] = {}
    for each in in_order_of_telling(obstacles):
        by_text.setdefault((sentence(each), remedy(each)), each)
    return tuple(Explained(each, *text) for text, each in by_text.items())


def _without_change(what_if: WhatIf, found: ChangeSearch) -> tuple[WhyVerdict, str]:
    match found.verdict:
        case WhyVerdict.BLOCKED:
            return found.verdict, _once_unblocked(what_if)
        case WhyVerdict.NOT_TRIED_YET:
            return found.verdict, "The next cycle will try it; ask again in a moment."
        case WhyVerdict.UNDECIDED:
            text = "Undecided: not every possible change was tried."
            if found.tried:
                some = (
                    f"None of the {found.tried} that were tried would" if found.tried > 1 else "One was, and would not"
                )
                text += f" {some} start it now without evicting other work."
        case _:
            text = (
                "No single change of its size, GPU model, queue, limit or quota, and no single workload that you "
                "stop, would start it now without evicting other work."
            )
    change, more = _changes_that_evict(what_if)
    verdict = WhyVerdict.CHANGE_EVICTS if change and found.is_complete else found.verdict
    return verdict, " ".join([text, *more])


def _once_unblocked(what_if: WhatIf) -> str:
    obstacles = what_if.state.backlog.gated[what_if.name]
    if any(each.reason is Reason.HELD for each in obstacles):
        return f"Release it: kaiwo release {short_name(what_if.name)}"
    if all(lasting(each) is Lasting.TEMPORARY for each in obstacles):
        return "It will be tried as soon as that is over."
    return "It can't start until the problem above is fixed."


def _changes_that_evict(what_if: WhatIf) -> tuple[PossibleChange | None, list[str]]:
    if not may_evict_others(what_if):
        return None, []
    found = change_that_evicts(what_if)
    if found.change is not None:
        return found.change, [_evicts(what_if, found.change)]
    text = "No work would be evicted for it with another size, model or queue either."
    if not found.is_complete:
        text = "Whether other work would be evicted for it with another size, model or queue was not tried."
    higher = raise_that_evicts(what_if)
    if higher.change is None:
        return None, [text]
    if higher.is_complete:
        return higher.change, [text, _evicts(what_if, higher.change)]
    raised = propose(what_if.state, what_if.name, higher.change).sentence
    return None, [text, f"Whether other work would be evicted for it if you {raised} was not tried."]


def _evicts(what_if: WhatIf, change: PossibleChange) -> str:
    text = propose(what_if.state, what_if.name, change).sentence
    delay_s = what_if.workload.preemption_delay_s
    when = f" once its preemption delay of {rounded_duration(delay_s)} is over" if delay_s else ""
    return f"But if you {text}, other work will be evicted to make room for it{when}."


def _placed(what_if: WhatIf) -> str:
    state, name = what_if.state, what_if.name
    if doing := below_minimum(state, name, what_if.policy, what_if.now_s):
        return f"{short_name(name)} is {doing}"
    nodes = sorted({pod.node for pod in state.pods.get(name, {}).values()})
    where = ", ".join(nodes[:4]) + (" and more" if len(nodes) > 4 else "")
    expires_s = state.workloads[name].expires_s
    until = f", and its allocation is granted until {clock_words(expires_s)}" if expires_s else ""
    placed = f"it has its pods on {where}" if nodes else "it is about to start"
    kept = kept_places(state, name, what_if.policy, what_if.now_s)
    return f"{short_name(name)} is not waiting: {placed}{until}" + (f"; {kept}" if kept else "")
