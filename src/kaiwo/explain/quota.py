"""The least raise of one limit or quota that would start a workload.

In:    a Question.   Out: raises worth a try, the least first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kaiwo.decide.cycle import Fate
from kaiwo.decide.limits import least_charge
from kaiwo.explain.change import RESOURCES, Change, Kind
from kaiwo.explain.room import Room
from kaiwo.explain.trial import Question
from kaiwo.model.queue import UNLIMITED
from kaiwo.model.workload import Workload, role_of
from kaiwo.snapshot.queues import ENDLESS, Charge


class Short(NamedTuple):
    """A bound with less left than the workload pays."""

    queue: str
    resource: str
    bound: str  # limit | quota: work that may not be preempted stays within both
    left: int

    def raised(self, by: int) -> Change:
        """The change that leaves more."""
        return Change(Kind.QUOTA, "admin", f"{self.queue}:{self.resource}:{self.bound}", by, by)


def raises(question: Question, room: Room) -> Iterator[Change | None]:
    """Raises of the one bound that is short, the least first; None where others may help that are not named here.

    Those before it take from a raised bound first. So when a raise is not enough, the next that can be is what it pays,
    plus what they took by the time of its turn: steps from below.
    """
    queues = question.view.queues
    row = queues.row.get(question.workload.queue)
    if row is not None and queues.is_model_bounded[row]:
        yield None  # a limit of one GPU model may be what is short, and that is not on the list
        return
    charges = _charges(question, room)
    shorts = [_short_bounds(question, charge) for charge in charges]
    bounds = next(filter(None, shorts), [])
    if not bounds or len(shorts[0]) > 1 or not room.takes_anywhere(question.workload):
        return  # no bound is in its way, or more than one, or a raise brings no room
    if len(bounds) > 1:
        yield None  # more than one at the price of the devices that have room, fewer at a lower price
        return
    short = bounds[0]
    top = _highest_raise(question, short)
    pays = sorted({charge[RESOURCES.index(short.resource)] for charge in charges})
    if top < pays[0] - short.left:
        return
    if len(pays) == 1 and (most := _most_taken(question, short, pays[0], top)) is not None:
        if question.fate_with(short.raised(top)).is_started:
            yield short.raised(pays[0] - short.left + most)
        return
    raise_by = taken = 0
    while raise_by := min((by for pay in pays if (by := pay - short.left + taken) > raise_by), default=0):
        if raise_by > top:
            return
        change = short.raised(raise_by)
        yield change
        taken = sum(_taken(question, short, question.fate_with(change)).values())
        if not _has_fixed_order(question, short):
            yield None  # with another bound come other shares, and another order: a raise between the steps may do
    yield None


def _highest_raise(question: Question, short: Short) -> int:
    """A quota stays within its queue's own limit: more than that is refused at the door."""
    amounts = getattr(question.picture.queue_objects[short.queue], short.resource)
    if short.bound == "quota" and amounts.limit != UNLIMITED:
        return int(amounts.limit - amounts.quota)
    return ENDLESS // 4


def _has_fixed_order(question: Question, short: Short) -> bool:
    """All who take from the bound stand in one line, so with a higher one they never take less of it.

    Let somebody take something that a lower bound forbade: that alone is more than all that the lower one had left.
    """
    return short.queue == question.workload.queue and not question.picture.leaving


def _most_taken(question: Question, short: Short, pays: int, top: int) -> int | None:
    """What those before it take under the highest bound, if it is the same under every one that leaves enough for it.

    So it is when none of those who start asks for more than it does: what is left for it was left for each of them.
    """
    if not _has_fixed_order(question, short):
        return None
    taken = _taken(question, short, question.fate_with(short.raised(top)))
    return sum(taken.values()) if all(each <= pays for each in taken.values()) else None


def _charges(question: Question, room: Room) -> list[Charge]:
    """What it may have to pay, the least first: of large devices the same memory is a smaller part than of small."""
    picture = question.picture
    needs = picture.needs_of(question.workload)
    shapes = {shape: picture.backlog.shapes[shape] for shape, _, _ in needs}
    sizes = sorted({size for want in shapes.values() if want.is_memory for size in room.sizes_with_room(want)})
    return [least_charge(picture, needs, lambda _, size=size: size) for size in reversed(sizes or [0])]  # type: ignore[misc]


def _taken(question: Question, short: Short, fate: Fate) -> dict[str, int]:
    """What others who started before it took of the bound, by workload."""
    picture = question.picture
    row, column = picture.queues.row[short.queue], RESOURCES.index(short.resource)
    taken: dict[str, int] = {}
    for start in fate.starts:
        workload = picture.workloads[start.workload]
        if workload.name == question.name:
            break  # others of the same stroke come after it
        if row not in picture.queues.path[picture.queues.row[workload.queue]]:
            continue
        if short.bound == "quota" and workload.preemptible:
            continue
        charge = _charge_of(workload, start.pod, sum(share.milli for share in start.devices))
        taken[workload.name] = taken.get(workload.name, 0) + charge[column]
    return taken


def _charge_of(workload: Workload, pod: str, milli: int) -> Charge:
    ask = role_of(workload, pod).request
    return milli, ask.cpu_milli, ask.memory_mib


def _short_bounds(question: Question, charge: Charge) -> list[Short]:
    """Every bound on the path with less left than the charge."""
    view, queues = question.view, question.view.queues
    bounds = [("limit", queues.limit, view.queue_used)]
    if not question.workload.preemptible:
        bounds.append(("quota", queues.quota, view.queue_fixed))
    row = queues.row.get(question.workload.queue)
    return [
        Short(queues.names[above], RESOURCES[column], word, int(bound[above, column] - used[above, column]))
        for above in (queues.path[row] if row is not None else ())
        for column, need in enumerate(charge)
        for word, bound, used in bounds
        if bound[above, column] < ENDLESS and 0 < need > bound[above, column] - used[above, column]
    ]
