"""The cheapest change that would start a workload now, verified by `decide`.

In:    a Question.   Out: one Change, or None with the reason why there is none.
The kinds are tried in the order of their cost, so the first that starts the workload is the cheapest.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from kaiwo.explain.placement_check import Room
from kaiwo.explain.possible_changes import Change, Kind, with_model
from kaiwo.explain.raised_quota import raises
from kaiwo.explain.smaller_request import smaller_sizes
from kaiwo.explain.verify_change import Question
from kaiwo.explain.workload_to_stop import Stops
from kaiwo.model.queue import who_turns_away
from kaiwo.snapshot.cluster_state import ClusterState

Candidates = Iterator[Change | None]  # cheapest first; None: others may help that are not named
Kinds = Iterator[tuple[Question, Candidates]]  # of one kind, and the state in which they are tried

MOST_LOOKS = (
    1_200  # what one kind may cost, in classes looked at: about 50 ms. Then the search is given up, and says so
)
ALL_KINDS = 2  # and all kinds together so many times that
SMALL, TO_THE_END = 4, 8  # so few nodes are searched so much longer: seldom more than ten trials, each of 2 ms


@dataclass(slots=True)
class _Search:
    """How many changes were put to `decide`, and whether some were not that might have helped."""

    tries: int = 0
    gave_up: bool = False
    looks: int = 0  # what all kinds cost so far

    def first_that_starts(self, question: Question, candidates: Candidates) -> Change | None:
        """The first of them after which `decide` starts the workload."""
        before, most = question.looks, most_looks(question)
        most = min(most, ALL_KINDS * most - self.looks)
        for change in candidates:
            if change is None:
                self.gave_up = True
                continue
            if question.looks - before > most and not question.is_tried(change):
                self.gave_up = True
                break
            self.tries += 1
            if question.starts_with(change):
                return change
        self.looks += question.looks - before
        return None


def cheapest_change(question: Question) -> tuple[Change | None, str]:
    """The change, and what must be said of the search: why there is none, or that a cheaper one may exist."""
    waiting = question.state.backlog
    if question.name in waiting.gated:
        return None, "it is not tried before what is in its way is gone; what helps stands beside it"
    if waiting.try_all or waiting.find(question.name)[0].key in waiting.to_try:
        return None, "the next cycle tries it; ask again in a moment"
    search = _Search()
    for asked, candidates in _kinds(question):
        change = search.first_that_starts(asked, candidates)
        if change is not None:
            said = f"{search.tries} changes were tried; a cheaper one may be among those that were not"
            return change, said if search.gave_up else ""
    if search.gave_up:
        return None, f"undecided: {search.tries} changes were tried and do not start it, and others were not tried"
    none = "no single change of size, model, queue, limit, quota or running workload would start it now"
    return None, f"{none} without stopping others"


def _kinds(question: Question) -> Kinds:
    """The closed list, cheapest kind first. Work that runs and would grow is helped by a limit alone."""
    room, most = Room(question), most_looks(question)
    if question.name in question.state.pods:
        yield question, raises(question, room, most)
        return
    again = question.resubmitted
    room_again = room if again is question else Room(again)
    yield again, smaller_sizes(again, room_again, _is_small(question))
    yield again, _models_with_room(again, room_again)
    yield again, _queues_with_room(again, room_again)
    stops = Stops(question)
    yield question, stops.worth_a_try("researcher")
    yield question, raises(question, room, most)
    yield question, stops.worth_a_try("admin")


def most_looks(question: Question) -> int:
    """What one kind of change may cost."""
    return MOST_LOOKS * TO_THE_END if _is_small(question) else MOST_LOOKS


def _is_small(question: Question) -> bool:
    return len(question.state.node_objects) <= SMALL


def other_models(question: Question) -> list[str]:
    """Every model in the cluster that it does not ask for; none where it asks for none."""
    asked = {model for role in question.workload.roles for model in role.request.gpu_models}
    there = {gpu.model for node in question.state.node_objects.values() for gpu in node.gpus}
    return sorted(there - asked) if asked else []


def other_queues(question: Question) -> Iterator[str]:
    """Every other queue that takes work of this user and namespace."""
    state, workload = question.state, question.workload
    for name, is_leaf in zip(state.queues.names, state.queues.is_leaf, strict=True):
        is_other = is_leaf and name != workload.queue
        if is_other and who_turns_away(state.queue_objects, replace(workload, queue=name)) is None:
            yield name


def _models_with_room(question: Question, room: Room) -> Iterator[Change]:
    for model in other_models(question):
        if room.takes(with_model(question.workload, model)):
            yield Change(Kind.OTHER_MODEL, "researcher", model)


def _queues_with_room(question: Question, room: Room) -> Iterator[Change]:
    """Those that have enough left."""
    workload = question.workload
    brings_room = _with_reservations(question.state)
    has_room = room.takes_anywhere(workload)
    for name in other_queues(question):
        if (has_room or name in brings_room) and room.takes(replace(workload, queue=name)):
            yield Change(Kind.OTHER_QUEUE, "researcher", name)


def _with_reservations(state: ClusterState) -> set[str]:
    """The queues whose work may use GPUs that are reserved for them or for a queue above."""
    queues = state.queues
    owners = {queues.row.get(each.owner.queue) for each in state.reservations.objects.values() if each.owner.queue}
    return {name for name, path in zip(queues.names, queues.path, strict=True) if not owners.isdisjoint(path)}
