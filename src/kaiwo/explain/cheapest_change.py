"""Find the cheapest change that would start a workload now, verified by `decide`.

The kinds are tried in the order of their cost, so the first change that starts the workload is the cheapest.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kaiwo.decide.placement.levels import constraint_levels
from kaiwo.explain.placement_check import PlacementCheck
from kaiwo.explain.possible_changes import (
    ChangeKind,
    LevelRef,
    PossibleChange,
    sharing_with_anyone,
    with_level,
    with_model,
)
from kaiwo.explain.raised_quota import quota_raises
from kaiwo.explain.smaller_request import smaller_sizes
from kaiwo.explain.verify_change import WhatIf
from kaiwo.explain.workload_to_stop import StopCandidates
from kaiwo.model.gpus.gpu import joined_rules
from kaiwo.model.network.constraint import CONSOLIDATED
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.obstacle import WhyVerdict
from kaiwo.model.queue import is_listed, queue_that_refuses
from kaiwo.snapshot.cluster_state import ClusterState

Candidates = Iterator[PossibleChange | None]  # cheapest first; None: changes that are not listed might help, too
Kinds = Iterator[tuple[WhatIf, Candidates]]  # of one kind, and the state in which they are tried

# What one kind may cost, in classes examined: about 50 ms. Then the search gives up and reports that.
MAX_COST = 1_200
ALL_KINDS_FACTOR = 2  # what all kinds together may cost, as a multiple of that
SMALL_CLUSTER_NODES = 4
SMALL_CLUSTER_FACTOR = 8  # small clusters are searched longer: seldom more than ten trials, each of 2 ms


class ChangeSearch(NamedTuple):
    change: PossibleChange | None
    verdict: WhyVerdict
    tried: int = 0
    is_complete: bool = True  # False: a change that was not tried might be cheaper, or the only one that helps


class _Search(msgspec.Struct):
    """What the search has tried so far."""

    tries: int = 0
    gave_up: bool = False
    cost: int = 0  # what all kinds cost so far

    def first_that_starts(self, what_if: WhatIf, candidates: Candidates) -> PossibleChange | None:
        before, most = what_if.cost, most_cost(what_if)
        most = min(most, ALL_KINDS_FACTOR * most - self.cost)
        for change in candidates:
            if change is None:
                self.gave_up = True
                continue
            if what_if.cost - before > most and not what_if.is_tried(change):
                self.gave_up = True
                break
            self.tries += 1
            if what_if.starts_after(change):
                return change
        self.cost += what_if.cost - before
        return None


def cheapest_change(what_if: WhatIf) -> ChangeSearch:
    waiting = what_if.state.backlog
    if what_if.name in waiting.gated:
        return ChangeSearch(None, WhyVerdict.BLOCKED)
    if waiting.try_all or waiting.class_of(what_if.name).key in waiting.to_try:
        return ChangeSearch(None, WhyVerdict.NOT_TRIED_YET)
    search = _Search()
    for asked, candidates in _candidates_by_kind(what_if):
        if (change := search.first_that_starts(asked, candidates)) is not None:
            return ChangeSearch(change, WhyVerdict.CHANGE_FOUND, search.tries, not search.gave_up)
    verdict = WhyVerdict.UNDECIDED if search.gave_up else WhyVerdict.NOTHING_HELPS
    return ChangeSearch(None, verdict, search.tries, not search.gave_up)


def _candidates_by_kind(what_if: WhatIf) -> Kinds:
    """The closed list, cheapest kind first. Running work that could grow is helped only by a higher limit."""
    check, most = PlacementCheck(what_if), most_cost(what_if)
    if what_if.name in what_if.state.pods:
        yield what_if, quota_raises(what_if, check, most)
        return
    again = what_if.resubmitted
    check_again = check if again is what_if else PlacementCheck(again)
    yield again, _sharing_with_anyone(again, check_again)
    yield again, looser_levels(again, check_again)
    yield again, smaller_sizes(again, check_again, _is_small(what_if))
    yield again, _models_with_room(again, check_again)
    yield again, _queues_with_room(again, check_again)
    stops = StopCandidates(what_if)
    yield what_if, stops.cheapest_first("researcher")
    yield what_if, quota_raises(what_if, check, most)
    yield what_if, stops.cheapest_first("admin")


def most_cost(what_if: WhatIf) -> int:
    return MAX_COST * SMALL_CLUSTER_FACTOR if _is_small(what_if) else MAX_COST


def _is_small(what_if: WhatIf) -> bool:
    return len(what_if.state.node_objects) <= SMALL_CLUSTER_NODES


def other_models(what_if: WhatIf) -> list[str]:
    """Every other model in the cluster; none if it asks for no model."""
    asked = {model for role in what_if.workload.roles for model in role.request.gpu_models}
    there = {gpu.model for node in what_if.state.node_objects.values() for gpu in node.gpus}
    return sorted(there - asked) if asked else []


def other_queues(what_if: WhatIf) -> Iterator[str]:
    """Every other queue that takes its work and names its user or namespace.

    Any other one would be a way around the limits that an administrator set for the workload's own queue.
    """
    state, workload = what_if.state, what_if.workload
    rule = state.sharing.of_queue(workload.queue, state.queue_objects)
    most_mib = state.sharing.limits_of(workload.queue, state.queue_objects).max_mib
    for name, is_leaf in zip(state.queues.names, state.queues.is_leaf, strict=True):
        if not is_leaf or name == workload.queue:
            continue
        moved, kept = replace(workload, queue=name), state.sharing.of_queue(name, state.queue_objects)
        # Nor is a queue whose work shares GPUs with more people, or has larger shares.
        is_as_strict = joined_rules((rule, kept)) == kept
        is_as_strict = is_as_strict and state.sharing.limits_of(name, state.queue_objects).max_mib <= most_mib
        is_theirs = is_listed(state.queue_objects, moved) and is_as_strict
        if is_theirs and queue_that_refuses(state.queue_objects, moved) is None:
            yield name


def _sharing_with_anyone(what_if: WhatIf, check: PlacementCheck) -> Iterator[PossibleChange]:
    """Its own rule about who may share a GPU with it may go; those of admins and of others stay."""
    has_rule = any(role.request.share_with for role in what_if.workload.roles)
    if has_rule and check.fits(sharing_with_anyone(what_if.workload)):
        yield PossibleChange(ChangeKind.SHARE_WITH_ANYONE, "researcher", what_if.name)


def _models_with_room(what_if: WhatIf, check: PlacementCheck) -> Iterator[PossibleChange]:
    for model in other_models(what_if):
        if check.fits(with_model(what_if.workload, model)):
            yield PossibleChange(ChangeKind.OTHER_MODEL, "researcher", model)


def _queues_with_room(what_if: WhatIf, check: PlacementCheck) -> Iterator[PossibleChange]:
    workload = what_if.workload
    brings_room = _with_reservations(what_if.state)
    has_room = check.fits_on_nodes(workload)
    for name in other_queues(what_if):
        if (has_room or name in brings_room) and check.fits(replace(workload, queue=name)):
            yield PossibleChange(ChangeKind.OTHER_QUEUE, "researcher", name)


def looser_levels(what_if: WhatIf, check: PlacementCheck) -> Iterator[PossibleChange]:
    """Each required level, one level wider after the other; then it is only preferred."""
    workload = what_if.workload
    levels = levels_of(workload)
    for part in levels.parts if levels is not None else ():
        if not part.constraint.required:
            continue
        found = constraint_levels(what_if.state.nodes, part.constraint, CONSOLIDATED)
        wider = [level.name for level in reversed(found.levels[: max(0, found.required)])]
        for cost, level in enumerate([*wider, ""]):
            looser = LevelRef(part.name, level)
            if check.fits(with_level(workload, looser)):
                yield PossibleChange(ChangeKind.LOOSER_LEVEL, "researcher", looser, cost=cost)


def _with_reservations(state: ClusterState) -> set[str]:
    """The queues whose work may use GPUs that are reserved for them or for a queue above them."""
    queues = state.queues
    owners = {queues.row.get(each.owner.queue) for each in state.reservations.objects.values() if each.owner.queue}
    return {name for name, path in zip(queues.names, queues.path, strict=True) if not owners.isdisjoint(path)}
