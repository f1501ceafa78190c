"""Put the stored past of one workload together: its waits, with what was in the way, and its attempts.

In:    the moments of a life, and what was in the way of its classes.   Out: values in the order of time.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from kaiwo.history.past.happenings import (
    ClassWait,
    Evicted,
    Gated,
    Life,
    LifeKey,
    Moment,
    Planned,
    PodsPlaced,
    Stopped,
    WaitsInClass,
)
from kaiwo.history.past.past_reader import PastReader
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.workload_record import AttemptRecord

TIME_GATES = (Reason.NOT_BEFORE, Reason.NOT_PERMITTED)  # they end by themselves, at the second in `need`
AT_ONCE_S = 2  # whatever waits for less did not wait for anything


class Waited(msgspec.Struct, frozen=True):
    """Why it waited for some time: the first thing in its way."""

    from_s: int
    until_s: int  # 0: it still does
    obstacle: Obstacle | None  # None: nobody knows


class Timeline(msgspec.Struct, frozen=True):
    """The stored past of one life."""

    life: Life
    waits: list[Waited]
    planned: list[Moment]  # Planned
    evictions: list[Moment]  # Evicted
    attempts: list[AttemptRecord]  # as seen, where the cluster itself keeps none
    unwatched: list[tuple[int, int]]  # when no scheduler was there to see what happened
    is_cut: bool  # more happened before that is not shown


def read_timeline(reader: PastReader, key: LifeKey, now_s: int) -> Timeline | None:
    """None: nothing is stored of it."""
    found = reader.life(key)
    if found is None:
        return None
    life, moments = found.life, found.moments
    end_s = life.ended_s or now_s
    waits: list[Waited] = []
    for at, moment in enumerate(moments):
        if isinstance(moment.what, WaitsInClass | Gated):
            after = next((each for each in moments[at + 1 :] if not isinstance(each.what, Planned | Evicted)), None)
            until_s = after.at_s if after is not None else life.ended_s
            following = after.what if after is not None and isinstance(after.what, WaitsInClass) else None
            waits += _waits(reader, moment, until_s, following, end_s)
    return Timeline(
        life,
        _merged(waits),
        [each for each in moments if isinstance(each.what, Planned)],
        [each for each in moments if isinstance(each.what, Evicted)],
        _attempts(moments, life.ended_s),
        _gaps(reader.watched(life.submitted_s, end_s), life.submitted_s, end_s),
        found.is_cut,
    )


def _waits(
    reader: PastReader, moment: Moment, until_s: int, following: WaitsInClass | None, end_s: int
) -> list[Waited]:
    if isinstance(moment.what, Gated):
        obstacle = moment.what.obstacle
        over_s = obstacle.need if obstacle.reason in TIME_GATES else end_s
        if over_s >= (until_s or end_s):
            return [Waited(moment.at_s, until_s, obstacle)]
        rest = _in_class(reader, following, over_s, until_s, end_s) if following else [Waited(over_s, until_s, None)]
        return [Waited(moment.at_s, over_s, obstacle), *rest]
    assert isinstance(moment.what, WaitsInClass)
    return _in_class(reader, moment.what, moment.at_s, until_s, end_s)


def _in_class(reader: PastReader, queued: WaitsInClass, from_s: int, until_s: int, end_s: int) -> list[Waited]:
    reasons = reader.class_waits(queued.queue, queued.shape, from_s, until_s or end_s + 1)
    if not reasons or reasons[0].at_s > from_s:
        reasons = [ClassWait(from_s, None), *reasons]
    ends = [*(each.at_s for each in reasons[1:]), until_s]
    return [Waited(max(from_s, each.at_s), end, each.obstacle) for each, end in zip(reasons, ends, strict=True)]


def _merged(waits: Sequence[Waited]) -> list[Waited]:
    """Without moments, and with what follows for the same reason as one."""
    found: list[Waited] = []
    for each in waits:
        if each.until_s and each.until_s - each.from_s < AT_ONCE_S:
            continue
        last = found[-1] if found else None
        if last is not None and last.until_s and each.from_s - last.until_s < AT_ONCE_S and _is_same(last, each):
            found[-1] = replace(last, until_s=each.until_s)
        else:
            found.append(each)
    return found


def _is_same(one: Waited, other: Waited) -> bool:
    if one.obstacle is None or other.obstacle is None:
        return one.obstacle is other.obstacle
    return (one.obstacle.reason, one.obstacle.subject) == (other.obstacle.reason, other.obstacle.subject)


def _attempts(moments: Sequence[Moment], ended_s: int) -> list[AttemptRecord]:
    found: list[AttemptRecord] = []
    for moment in moments:
        if isinstance(moment.what, PodsPlaced):
            if not found or found[-1].ended_s:
                found.append(AttemptRecord(len(found) + 1, moment.at_s))
            pods = {pod.pod: pod for pod in (*found[-1].pods, *moment.what.pods)}
            found[-1] = replace(found[-1], pods=tuple(pods.values()))
        elif isinstance(moment.what, Stopped) and found:
            found[-1] = replace(found[-1], ended_s=moment.at_s)
    if found and not found[-1].ended_s and ended_s:
        found[-1] = replace(found[-1], ended_s=ended_s)
    return found


def _gaps(watched: Sequence[tuple[int, int]], from_s: int, to_s: int) -> list[tuple[int, int]]:
    """Of the time from one to the other, what nobody watched, in spans of a few minutes at least."""
    found, at_s = [], from_s
    for begins_s, until_s in watched:
        if begins_s - at_s > 120:
            found.append((at_s, begins_s))
        at_s = max(at_s, until_s)
    return [*found, (at_s, to_s)] if to_s - at_s > 120 else found
