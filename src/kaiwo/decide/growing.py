"""Let elastic work that has just started grow, once everybody had a turn: the poorest queue first, a pod at a time.

In:    the desk, and who began with no more than it needs.   Out: more starts on the desk.
"""

from collections.abc import Callable

from kaiwo.decide.desk import Desk
from kaiwo.decide.gang import ALL_PODS, Placement
from kaiwo.decide.order import Next, Turns


class Growing:
    """The work of one queue that could use more, in the order in which it began."""

    def __init__(self) -> None:
        self._works: list[tuple[Placement, Next]] = []

    def __bool__(self) -> bool:
        return bool(self._works)

    def join(self, placement: Placement, needs: Next) -> None:
        """Behind those who began before."""
        self._works.append((placement, needs))

    @property
    def first(self) -> Placement:
        """Who is next."""
        return self._works[0][0]

    def next_of(self) -> Next:
        """What one more pod of the first one needs, and since when it waited: it stands for its queue."""
        return self._works[0][1]

    def drop(self) -> None:
        """The first one cannot grow any more."""
        del self._works[0]


def grow(desk: Desk, lanes: dict[str, Growing], is_over: Callable[[], bool]) -> None:
    """Until nobody can grow any more. Where one queue is left its work takes all that it can."""
    turns = Turns(lanes, desk.working, desk.active, Growing.next_of)
    while turns and not is_over():
        lane = turns.lane
        starts = lane.first.grow(ALL_PODS if turns.is_last_queue else 1)
        desk.starts.extend(starts)
        desk.steps += max(1, len(starts))
        if not starts or turns.is_last_queue:
            lane.drop()
        turns.again()
