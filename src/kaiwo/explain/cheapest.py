"""The cheapest change that would start a workload now, verified by `decide`.

In:    a Question.   Out: one Change, or None with the reason why there is none.
The kinds are tried in the order of their cost, so the first that starts the workload is the cheapest.
"""

from collections.abc import Iterator

from kaiwo.decide.gang import least_charge
from kaiwo.explain.change import RESOURCES, Change, Kind, with_model
from kaiwo.explain.sizes import Room, smaller_sizes
from kaiwo.explain.stops import stops_worth_a_try
from kaiwo.explain.trial import Question
from kaiwo.model.plan import Start
from kaiwo.model.workload import Workload, role_of
from kaiwo.snapshot.queues import ENDLESS, Charge

MOST_TRIES = 12  # questions to decide for one kind; beyond that the answer says that it is undecided


def cheapest_change(question: Question) -> tuple[Change | None, str]:
    """The change, or why there is none to propose."""
    waiting = question.picture.backlog
    if question.name in waiting.gate:
        return None, "it is not tried before what is in its way is gone; what helps stands beside it"
    if waiting.all_open or waiting.stand_of(question.name)[0].key in waiting.open:
        return None, "the next cycle tries it; ask again in a moment"
    undecided = False
    room = Room(question)
    for candidates in (
        _smaller_sizes(question, room),
        _other_models(question, room),
        _other_queues(question, room),
        _stops(question, "researcher"),
        _quota(question, room),
        _stops(question, "admin"),
    ):
        for tries, change in enumerate(candidates):
            if tries == MOST_TRIES:
                undecided = True
                break
            if question.starts_with(change):
                return change, ""
    if undecided:
        return None, f"undecided: more than {MOST_TRIES} running workloads could each make room, and those tried do not"
    return None, "no single change of size, model, queue, limit or running workload would start it now"


def _smaller_sizes(question: Question, room: Room) -> Iterator[Change]:
    """The least given up first."""
    yield from sorted(smaller_sizes(question, room), key=lambda change: change.rank)


def _stops(question: Question, by: str) -> Iterator[Change]:
    """Running workloads, the least lost work first: one's own, or anybody's."""
    yield from stops_worth_a_try(question, by)


def _other_models(question: Question, room: Room) -> Iterator[Change]:
    """Every model in the cluster that it does not ask for."""
    picture = question.picture
    workload = picture.workloads[question.name]
    asked = {model for role in workload.roles for model in role.request.gpu_models}
    if not asked:
        return
    for model in sorted({gpu.model for node in picture.node_objects.values() for gpu in node.gpus} - asked):
        if room.takes(with_model(workload, model)):
            yield Change(Kind.OTHER_MODEL, "researcher", model)


def _other_queues(question: Question, room: Room) -> Iterator[Change]:
    """Every other queue that takes work."""
    picture = question.picture
    workload = picture.workloads[question.name]
    if not room.takes_anywhere(workload):
        return  # another queue brings no room
    for name, is_leaf in zip(picture.queues.names, picture.queues.is_leaf, strict=True):
        if is_leaf and name != workload.queue:
            yield Change(Kind.OTHER_QUEUE, "researcher", name)


def _quota(question: Question, room: Room) -> Iterator[Change]:
    """A higher limit for the one queue and resource that is short.

    Those before it take from a raised limit first, and with a higher limit they never take less. So when a raise is
    not enough, the next that can be is what was short, plus what they took by the time of its turn.
    """
    picture = question.picture
    short = _short_limits(question)
    if len(short) != 1 or not room.takes_anywhere(picture.workloads[question.name]):
        return
    (queue, resource), missing = next(iter(short.items()))
    need = least_charge(picture, picture.needs_of(picture.workloads[question.name]))[RESOURCES.index(resource)]
    raise_by = missing + need * picture.backlog.ahead_in_class(question.name)  # its equals before it start before it
    while True:
        change = Change(Kind.QUOTA, "admin", f"{queue}:{resource}", raise_by, raise_by)
        yield change
        fate = question.fate_with(change)
        enough = missing + _taken(question, queue, resource, fate.starts)
        if not fate.has_room or enough <= raise_by:
            return  # something else is in the way
        raise_by = enough


def _taken(question: Question, queue: str, resource: str, starts: tuple[Start, ...]) -> int:
    """What those who started took of a queue's limit."""
    picture = question.picture
    row = picture.queues.row[queue]
    workloads = ((picture.workloads[start.workload], start) for start in starts)
    below = ((w, start) for w, start in workloads if row in picture.queues.path[picture.queues.row[w.queue]])
    return sum(_charge_of(workload, start)[RESOURCES.index(resource)] for workload, start in below)


def _charge_of(workload: Workload, start: Start) -> Charge:
    ask = role_of(workload, start.pod).request
    return sum(share.milli for share in start.devices), ask.cpu_milli, ask.memory_mib


def _short_limits(question: Question) -> dict[tuple[str, str], int]:
    """Queue and resource on the path that have less left than it needs, and how much less."""
    picture = question.picture
    workload = picture.workloads[question.name]
    queues = picture.queues
    row = queues.row.get(workload.queue)
    short: dict[tuple[str, str], int] = {}
    if row is None:
        return short
    charge = least_charge(picture, picture.needs_of(workload))
    for above in queues.path[row]:
        for column, need in enumerate(charge):
            limit = int(queues.limit[above, column])
            missing = need - (limit - int(queues.used[above, column]))
            if limit < ENDLESS and need and missing > 0:
                short[(queues.names[above], RESOURCES[column])] = missing
    return short
