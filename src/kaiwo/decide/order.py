"""Choose what is tried next: the queue that the orders put first, and in it the workload that stands first.

In:    the classes that deserve a try.   Out: one turn after the other.
Never: looks at every waiting workload; a class that cannot start is set aside with all who stand in it.
"""

from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from kaiwo.decide.ask import ask
from kaiwo.plugins.registry import Active
from kaiwo.snapshot.backlog import WaitingClass
from kaiwo.snapshot.line import Place
from kaiwo.snapshot.working import Working

Head = tuple[Place, int, WaitingClass]  # the place, its position in the class's line, the class


_NONE = np.zeros(0, np.intp)


class Lane:
    """The classes of one queue, by who stands first in each."""

    def __init__(self, classes: list[WaitingClass]) -> None:
        self._heads: list[Head] = [(found.line.at(0), 0, found) for found in classes]
        heapify(self._heads)

    def __bool__(self) -> bool:
        return bool(self._heads)

    def mark(self) -> list[Head]:
        """Where the lane stands, for `back_to`."""
        return list(self._heads)

    def back_to(self, mark: list[Head]) -> None:
        """Stand where one stood."""
        self._heads = mark

    @property
    def first(self) -> tuple[str, int, WaitingClass]:
        """The name of who is next, the position in the line, and the class."""
        place, position, found = self._heads[0]
        return place[1], position, found

    def run(self) -> int:
        """How many of the first class stand before the first of any other class."""
        _, position, found = self._heads[0]
        others = min((head[0] for head in self._heads[1:3]), default=None)
        end = len(found.line) if others is None else found.line.position(others)
        return max(1, end - position)

    def advance(self, count: int) -> None:
        """The first `count` of the first class had their turn."""
        _, position, found = self._heads[0]
        position += count
        if position < len(found.line):
            heapreplace(self._heads, (found.line.at(position), position, found))
        else:
            heappop(self._heads)

    def set_aside(self) -> None:
        """The first class is stuck: nobody in it is tried again in this cycle."""
        heappop(self._heads)

    def rest(self) -> list[WaitingClass]:
        """The classes that still hope for a turn."""
        return [found for _, _, found in self._heads]


class Turns:
    """Whose turn it is, over all queues."""

    def __init__(self, lanes: dict[str, Lane], working: Working, active: Active) -> None:
        self.lanes, self._working, self._active = lanes, working, active
        self._orders = [(plugin, getattr(plugin, "queue_order_of", None)) for plugin in active.queue_orders]
        self._all_quick = all(quick for _, quick in self._orders)
        rows = np.array([working.queues.row[name] for name in lanes], np.intp)
        self._heap = [(key, name) for key, name in zip(self._keys(rows), lanes, strict=True)]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def mark(self) -> list[tuple[tuple[int, ...], str]]:
        """The order of the queues as it stands, for `back_to`."""
        return list(self._heap)

    def back_to(self, mark: list[tuple[tuple[int, ...], str]]) -> None:
        """Put the queues into the order in which they stood."""
        self._heap = mark

    @property
    def lane(self) -> Lane:
        """The lane of the queue whose turn it is."""
        return self.lanes[self.queue]

    @property
    def is_last_queue(self) -> bool:
        """No other queue competes for turns."""
        return len(self._heap) == 1

    @property
    def queue(self) -> str:
        """The queue whose turn it is."""
        return self._heap[0][1]

    def again(self) -> None:
        """The queue took its turn: stand in the order anew, or leave when nobody is left in it."""
        if self.is_last_queue and self.lanes[self.queue]:
            return
        _, name = heappop(self._heap)
        if self.lanes[name]:
            heappush(self._heap, (self._key(self._working.queues.row[name]), name))

    def _key(self, row: int) -> tuple[int, ...]:
        """One queue's key. An order that can answer for one queue is asked so: an array of one costs ten times that."""
        one = np.array([row], np.intp) if not self._all_quick else _NONE
        return tuple(
            quick(self._working, row) if quick else int(ask(plugin.name, plugin.queue_order, 1, self._working, one)[0])
            for plugin, quick in self._orders
        )

    def _keys(self, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> list[tuple[int, ...]]:
        columns = [ask(p.name, p.queue_order, len(rows), self._working, rows) for p in self._active.queue_orders]
        return [tuple(int(column[at]) for column in columns) for at in range(len(rows))]
