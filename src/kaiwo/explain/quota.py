"""The least raise of one limit that would start a workload.

In:    a Question.   Out: raises worth a try, the least first.
"""

from collections.abc import Iterator

from kaiwo.decide.cycle import Fate
from kaiwo.decide.limits import least_charge
from kaiwo.explain.change import RESOURCES, Change, Kind
from kaiwo.explain.room import Room
from kaiwo.explain.trial import Question
from kaiwo.model.workload import Workload, role_of
from kaiwo.snapshot.queues import ENDLESS, Charge


def raises(question: Question, room: Room) -> Iterator[Change | None]:
    """Raises of the one limit that is short, the least first; None where others may help that are not named here.

    Those before it take from a raised limit first. So when a raise is not enough, the next that can be is what it pays,
    plus what they took by the time of its turn: steps from below.
    """
    charges = _charges(question, room)
    short = [_short_limits(question, charge) for charge in charges]
    limits = next(filter(None, short), [])
    if not limits or len(short[0]) > 1 or not room.takes_anywhere(question.workload):
        return  # no limit is in its way, or more than one, or a raise brings no room
    if len(limits) > 1:
        yield None  # more than one at the price of the devices that have room, fewer at a lower price
        return
    queue, resource, left = limits[0]
    pays = sorted({charge[RESOURCES.index(resource)] for charge in charges})
    if len(pays) == 1 and (most := _most_taken(question, queue, resource, pays[0])) is not None:
        without_limit = question.fate_with(_raise(queue, resource, ENDLESS // 4))
        if without_limit.is_started:
            yield _raise(queue, resource, pays[0] - left + most)
        return
    raise_by = taken = 0
    while raise_by := min((pay - left + taken for pay in pays if pay - left + taken > raise_by), default=0):
        change = _raise(queue, resource, raise_by)
        yield change
        taken = sum(_taken(question, queue, resource, question.fate_with(change)).values())
        if not _has_fixed_order(question, queue):
            yield None  # with another limit come other shares, and another order: a raise between the steps may do
    yield None


def _has_fixed_order(question: Question, queue: str) -> bool:
    """All who take from the limit stand in one line, so with a higher limit they never take less of it.

    Let somebody take something that a lower limit forbade: that alone is more than all that the lower one had left.
    """
    return queue == question.workload.queue and not question.picture.leaving


def _most_taken(question: Question, queue: str, resource: str, pays: int) -> int | None:
    """What those before it take without any limit, if they take the same under every limit that leaves enough for it.

    So it is when none of those who start asks for more than it does: what is left for it was left for each of them.
    """
    if not _has_fixed_order(question, queue):
        return None
    taken = _taken(question, queue, resource, question.fate_with(_raise(queue, resource, ENDLESS // 4)))
    return sum(taken.values()) if all(each <= pays for each in taken.values()) else None


def _charges(question: Question, room: Room) -> list[Charge]:
    """What it may have to pay, the least first: of large devices the same memory is a smaller part than of small."""
    picture = question.picture
    needs = picture.needs_of(question.workload)
    shapes = {shape: picture.backlog.shapes[shape] for shape, _, _ in needs}
    sizes = sorted({size for want in shapes.values() if want.is_memory for size in room.sizes_with_room(want)})
    return [least_charge(picture, needs, lambda _, size=size: size) for size in reversed(sizes or [0])]  # type: ignore[misc]


def _raise(queue: str, resource: str, raise_by: int) -> Change:
    return Change(Kind.QUOTA, "admin", f"{queue}:{resource}", raise_by, raise_by)


def _taken(question: Question, queue: str, resource: str, fate: Fate) -> dict[str, int]:
    """What others who started before it took of a queue's limit, by workload."""
    picture = question.picture
    row, column = picture.queues.row[queue], RESOURCES.index(resource)
    taken: dict[str, int] = {}
    for start in fate.starts:
        workload = picture.workloads[start.workload]
        if workload.name == question.name:
            break  # others of the same stroke come after it
        if row not in picture.queues.path[picture.queues.row[workload.queue]]:
            continue
        charge = _charge_of(workload, start.pod, sum(share.milli for share in start.devices))
        taken[workload.name] = taken.get(workload.name, 0) + charge[column]
    return taken


def _charge_of(workload: Workload, pod: str, milli: int) -> Charge:
    ask = role_of(workload, pod).request
    return milli, ask.cpu_milli, ask.memory_mib


def _short_limits(question: Question, charge: Charge) -> list[tuple[str, str, int]]:
    """Queue and resource on the path that have less left than it needs, and what they have left."""
    queues, used = question.view.queues, question.view.queue_used
    row = queues.row.get(question.workload.queue)
    short = []
    for above in queues.path[row] if row is not None else ():
        for column, need in enumerate(charge):
            limit = int(queues.limit[above, column])
            left = limit - int(used[above, column])
            if limit < ENDLESS and need and need > left:
                short.append((queues.names[above], RESOURCES[column], left))
    return short
