"""What the time alone does to a picture: reservations begin and end, allocations expire.

In:    the picture and the time of the next cycle.   Out: the picture as of that time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kaiwo.model.reservation import ENDLESS_S
from kaiwo.model.workload import Phase
from kaiwo.snapshot.array_types import Rows

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import Picture

UP = (Phase.ASSUMED, Phase.RUNNING)
Stand = Callable[[str, int], None]  # let a workload stand where it belongs, as of a time


def mind_the_time(picture: "Picture", now_s: int, stand: Stand) -> None:
    """Let the reservations and the expiries see what time it is."""
    _mind_reservations(picture, now_s, stand)
    picture.is_due = picture.is_due or bool(expired_work(picture, now_s))
    for name in _over(picture, now_s):
        if picture.backlog.stands(name):  # from now on it waits at the gate, and is not tried
            picture.version += 1
            stand(name, now_s)


def expired_work(picture: "Picture", now_s: int) -> list[str]:
    """Workloads whose allocation was given until now, and that were not told so or still run."""
    over = _over(picture, now_s)
    return [name for name in over if name not in picture.told_expired or _is_up(picture, name)]


def next_moment_s(picture: "Picture", now_s: int) -> int:
    """When time alone changes something next; 0: never."""
    coming = [at_s for at_s in (picture.reserved.next_s, *picture.expiring.values()) if at_s > now_s]
    soonest = min(coming, default=ENDLESS_S)
    return soonest if soonest < ENDLESS_S else 0


def _mind_reservations(picture: "Picture", now_s: int, stand: Stand) -> None:
    book = picture.reserved
    picture.tidy()
    if book.is_turning(now_s):
        before = book.rows(picture.nodes)
        book.tick(now_s)
        picture.version += 1
        picture.is_due = True
        picture.backlog.all_open = True
        _touch(picture, np.union1d(before, book.rows(picture.nodes)))
        _stand_anew(picture, now_s, stand)
    elif (rows := book.coming(now_s, picture.nodes)) is not None:
        picture.version += 1
        _touch(picture, rows)


def _touch(picture: "Picture", rows: Rows) -> None:
    """What is known of these nodes for any shape is worked out anew."""
    picture.nodes.changed[rows] = picture.version


def _stand_anew(picture: "Picture", now_s: int, stand: Stand) -> None:
    """Whoever may use other reservations than before stands in another class now."""
    book, backlog, shapes = picture.reserved, picture.backlog, picture.backlog.shapes
    for name in list(backlog.standing()):
        workload = picture.workloads[name]
        want = shapes[backlog.stand_of(name)[0].needs[0][0]]
        if book.badge(workload, picture.queue_objects) != (want.passes, want.holds_s):
            stand(name, now_s)


def _over(picture: "Picture", now_s: int) -> list[str]:
    return sorted(name for name, at_s in picture.expiring.items() if at_s <= now_s)


def _is_up(picture: "Picture", name: str) -> bool:
    return any(pod.phase in UP for pod in picture.pods.get(name, {}).values())
