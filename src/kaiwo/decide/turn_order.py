"""Order the turns: the next to try is the first workload of the queue that the order plugins put first.

Never: looks at every waiting workload; a class that cannot start is set aside with all its workloads.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kaiwo.model.planned_start import PlannedStart
from kaiwo.plugins.guarded_calls import call_for_row, call_for_rows
from kaiwo.plugins.registry import ActivePlugins
from kaiwo.snapshot.backlog import TrialPosition, WaitingClass
from kaiwo.snapshot.queue_table import NO_PARENT, ResourceVector
from kaiwo.snapshot.view import View

LaneHead = tuple[TrialPosition, int, WaitingClass]  # the next workload's position and index in its class; the class
MANY_QUEUES = 8  # from this many queues on, one array is quicker than one call each


class NextNeed(NamedTuple):
    """What the first workload of a queue needs to start, and since when it waits."""

    amounts: ResourceVector
    since_s: int


NO_NEED = NextNeed((0, 0, 0), 0)


class Lane:
    """The classes of one queue, ordered by the first workload of each."""

    def __init__(self, classes: list[WaitingClass]) -> None:
        self._heads: list[LaneHead] = [(found.waiters.at(0), 0, found) for found in classes]
        heapify(self._heads)

    def __bool__(self) -> bool:
        return bool(self._heads)

    def savepoint(self) -> list[LaneHead]:
        return list(self._heads)

    def rollback(self, savepoint: list[LaneHead]) -> None:
        self._heads = savepoint

    @property
    def first(self) -> LaneHead:
        return self._heads[0]

    def run_length(self) -> int:
        """How many workloads of the first class come before the first of any other class."""
        heads = self._heads
        _, position, found = heads[0]
        waiters = found.waiters
        if len(heads) == 1:
            return len(waiters) - position
        others = heads[1][0] if len(heads) == 2 else min(heads[1][0], heads[2][0])
        if waiters.is_last_before(position, others):
            return 1  # the usual case where kinds are mixed: no search is needed
        return waiters.ahead_of(others) - position

    def advance(self, count: int) -> None:
        """The first `count` workloads of the first class have had their turn."""
        _, position, found = self._heads[0]
        position += count
        if position < len(found.waiters):
            heapreplace(self._heads, (found.waiters.at(position), position, found))
        else:
            heappop(self._heads)

    def set_aside(self) -> None:
        """The first class is stuck: it is not tried again in this cycle."""
        heappop(self._heads)

    def rest(self) -> list[WaitingClass]:
        return [found for _, _, found in self._heads]


def lanes_of(classes: Iterable[WaitingClass]) -> dict[str, Lane]:
    by_queue: dict[str, list[WaitingClass]] = {}
    for found in classes:
        by_queue.setdefault(found.queue, []).append(found)
    return {queue: Lane(together) for queue, together in by_queue.items()}


def classes_left(lanes: Mapping[str, Lane]) -> list[WaitingClass]:
    """The classes that have not had their turn."""
    return [found for lane in lanes.values() for found in lane.rest()]


def is_planned(planned: Mapping[str, PlannedStart], waiting_class: WaitingClass) -> bool:
    """Every workload of the class waits for a planned start."""
    return 0 < len(waiting_class.waiters) <= len(planned) and all(name in planned for _, name in waiting_class.waiters)


L = TypeVar("L")  # a lane: false when no work is left in it


class Turns(Generic[L]):
    """Which queue is next: down the tree, at each level to the child that the orders put first (last, in reverse)."""

    def __init__(
        self,
        lanes: dict[str, L],
        view: View,
        active: ActivePlugins,
        next_of: Callable[[L], NextNeed],
        reverse: bool = False,
    ) -> None:
        self.lanes, self._view, self._active, self._sign = lanes, view, active, -1 if reverse else 1
        self._next_of = next_of
        self._quick = [(plugin, getattr(plugin, "queue_order_of", None)) for plugin in active.queue_orders]
        self._left = sum(1 for lane in lanes.values() if lane)
        self._next: dict[int, NextNeed] = {}  # by row of a queue with work left: what its next workload needs
        self._heaps: dict[int, list[Entry]] = {}  # by parent: its children with work left
        self.row = NO_PARENT  # of the queue whose turn it is
        self._build()

    def __bool__(self) -> bool:
        return self._left > 0

    def savepoint(self) -> "TurnsSavepoint":
        """The order of the queues, for `rollback`."""
        return {parent: list(heap) for parent, heap in self._heaps.items()}, dict(self._next), self._left

    def rollback(self, savepoint: "TurnsSavepoint") -> None:
        """Restore the order of the queues; the lanes must be rolled back, too."""
        self._heaps, self._next, self._left = savepoint
        self._descend()

    @property
    def lane(self) -> L:
        return self.lanes[self._view.queues.names[self.row]]

    @property
    def is_last_queue(self) -> bool:
        return self._left == 1

    def requeue(self) -> None:
        """The queue took its turn: reorder it and all above it, or drop it when it has no work left."""
        row, lane = self.row, self.lane
        is_left = bool(lane)
        if is_left:
            if self._left == 1:
                return
            self._next[row] = self._next_of(lane)
        else:
            self._left -= 1
        self._reorder(row, is_left)
        self._descend()

    def _descend(self) -> None:
        row, heap = NO_PARENT, self._heaps.get(NO_PARENT)
        while heap is not None:
            row = heap[0][1]
            heap = self._heaps.get(row)
        self.row = row

    def _reorder(self, row: int, is_left: bool) -> None:
        """From a leaf at the top of all its heaps upwards."""
        path = self._view.queues.path[row]
        for at, each in enumerate(path):
            parent = path[at + 1] if at + 1 < len(path) else NO_PARENT
            heap = self._heaps[parent]
            if is_left:
                if at:
                    self._next[each] = self._next[self._heaps[each][0][1]]
                heapreplace(heap, (self._key(each), each))
                continue
            heappop(heap)
            del self._next[each]
            if heap:
                is_left = True
            else:
                del self._heaps[parent]

    def _build(self) -> None:
        """All queues with waiting work, from the leaves up."""
        queues = self._view.queues
        by_depth: dict[int, set[int]] = {}
        for name, lane in self.lanes.items():
            if lane:
                row = queues.row[name]
                self._next[row] = self._next_of(lane)
                by_depth.setdefault(len(queues.path[row]), set()).add(row)
        for depth in range(max(by_depth, default=0), 0, -1):
            rows = sorted(by_depth.get(depth, ()))
            for key, row in zip(self._keys(rows), rows, strict=True):
                path = queues.path[row]
                parent = path[1] if len(path) > 1 else NO_PARENT
                self._heaps.setdefault(parent, []).append((key, row))
                if parent != NO_PARENT:
                    by_depth.setdefault(depth - 1, set()).add(parent)
            for parent in {queues.path[row][1] for row in rows if len(queues.path[row]) > 1}:
                heapify(self._heaps[parent])
                self._next[parent] = self._next[self._heaps[parent][0][1]]
        if NO_PARENT in self._heaps:
            heapify(self._heaps[NO_PARENT])
        self._descend()

    def _key(self, row: int) -> tuple[int, ...]:
        """Plugins that can order a single queue do so: an array of one costs ten times as much."""
        need, since_s = self._next[row]
        key: tuple[int, ...] = ()
        for plugin, quick in self._quick:
            if quick:
                key += call_for_row(plugin.name, quick, self._view, row, need, since_s)
            else:
                arguments = (np.array([row]), np.array([need]), np.array([since_s]))
                key += call_for_rows(plugin.name, plugin.queue_order, 1, self._view, *arguments)[0]
        return key if self._sign > 0 else tuple([-part for part in key])

    def _keys(self, rows: list[int]) -> list[tuple[int, ...]]:
        if len(rows) == 1 and self._left == 1:
            return [()]  # there is nothing to compare it with: computing shares would be wasted
        if len(rows) < MANY_QUEUES and all(quick for _, quick in self._quick):
            return [self._key(row) for row in rows]
        need = np.array([self._next[row].amounts for row in rows], np.int64)
        since_s = np.array([self._next[row].since_s for row in rows], np.int64)
        at = np.array(rows, np.intp)
        keys = [()] * len(rows)  # type: list[tuple[int, ...]]
        for plugin in self._active.queue_orders:
            column = call_for_rows(plugin.name, plugin.queue_order, len(rows), self._view, at, need, since_s)
            keys = [key + more for key, more in zip(keys, column, strict=True)]
        return keys if self._sign > 0 else [tuple([-part for part in key]) for key in keys]


Entry = tuple[tuple[int, ...], int]
TurnsSavepoint = tuple[dict[int, list[Entry]], dict[int, NextNeed], int]
