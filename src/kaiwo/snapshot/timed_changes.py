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
    from kaiwo.snapshot.cluster_state import ClusterState

UP = (Phase.ASSUMED, Phase.RUNNING)
Stand = Callable[[str, int], None]  # let a workload stand where it belongs, as of a time


def mind_the_time(state: "ClusterState", now_s: int, stand: Stand) -> None:
    """Let the reservations and the expiries see what time it is."""
    _mind_reservations(state, now_s, stand)
    state.is_due = state.is_due or bool(expired_work(state, now_s))
    for name in _over(state, now_s):
        if state.backlog.stands(name):  # from now on it waits at the gate, and is not tried
            state.version += 1
            stand(name, now_s)


def expired_work(state: "ClusterState", now_s: int) -> list[str]:
    """Workloads whose allocation was given until now, and that were not told so or still run."""
    over = _over(state, now_s)
    return [name for name in over if name not in state.told_expired or _is_up(state, name)]


def next_moment_s(state: "ClusterState", now_s: int) -> int:
    """When time alone changes something next; 0: never."""
    coming = [at_s for at_s in (state.reserved.next_s, *state.expiring.values()) if at_s > now_s]
    soonest = min(coming, default=ENDLESS_S)
    return soonest if soonest < ENDLESS_S else 0


def _mind_reservations(state: "ClusterState", now_s: int, stand: Stand) -> None:
    book = state.reserved
    state.tidy()
    if book.is_turning(now_s):
        before = book.rows(state.nodes)
        book.tick(now_s)
        state.version += 1
        state.is_due = True
        state.backlog.all_open = True
        _touch(state, np.union1d(before, book.rows(state.nodes)))
        _stand_anew(state, now_s, stand)
    elif (rows := book.coming(now_s, state.nodes)) is not None:
        state.version += 1
        _touch(state, rows)


def _touch(state: "ClusterState", rows: Rows) -> None:
    """What is known of these nodes for any shape is worked out anew."""
    state.nodes.changed[rows] = state.version


def _stand_anew(state: "ClusterState", now_s: int, stand: Stand) -> None:
    """Whoever may use other reservations than before stands in another class now."""
    book, backlog, shapes = state.reserved, state.backlog, state.backlog.shapes
    for name in list(backlog.standing()):
        workload = state.workloads[name]
        want = shapes[backlog.stand_of(name)[0].needs[0].shape]
        if book.badge(workload, state.queue_objects) != (want.passes, want.holds_s):
            stand(name, now_s)


def _over(state: "ClusterState", now_s: int) -> list[str]:
    return sorted(name for name, at_s in state.expiring.items() if at_s <= now_s)


def _is_up(state: "ClusterState", name: str) -> bool:
    return any(pod.phase in UP for pod in state.pods.get(name, {}).values())
