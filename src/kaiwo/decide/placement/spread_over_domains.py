"""Divide equal pods over the nodes of an area: in as few domains as possible, or evenly, on every level.

In:    how many pods fit on each node, and the levels inside the area.   Out: nodes with numbers of pods, in the order
of domains, so that pods with neighbouring indices are near each other.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.divide_by_rate import PlacementArea, RateLimits, limits_at_best_rate
from kaiwo.model.network.constraint import BALANCED, DISTRIBUTED, STATED
from kaiwo.snapshot.array_types import IntArray, Rows

_LAST = 1 << 40  # after all others


class NodePods(NamedTuple):
    row: int
    pods: int


def pods_by_node(slots: IntArray, score: IntArray, area: PlacementArea, count: int) -> list[NodePods]:
    """Where `count` pods go; fewer when not all of them fit. `slots` are those inside the area."""
    limits = limits_at_best_rate(area, slots, score, count)
    slots = slots if limits is None else limits.slots
    rows = np.flatnonzero(slots > 0)
    counts = np.zeros(len(slots), np.int64)
    division = _Division(slots, score, area, counts, limits)
    division.divide(rows, 0, min(count, int(slots[rows].sum())))
    used = np.flatnonzero(counts)
    if area.strategy == STATED:
        used = used[np.lexsort((used, -score[used]))]
    else:
        used = used[np.lexsort((used, *(level[used] for level in reversed(area.levels))))]
    return [NodePods(row, pods) for row, pods in zip(used.tolist(), counts[used].tolist(), strict=True)]


class _Division:
    def __init__(
        self, slots: IntArray, score: IntArray, area: PlacementArea, counts: IntArray, limits: RateLimits | None
    ) -> None:
        self._slots, self._score, self._area, self._counts, self._limits = slots, score, area, counts, limits

    def divide(self, rows: Rows, level: int, count: int) -> None:
        """Put `count` pods on these nodes, which have room for them."""
        if not count:
            return
        if self._area.strategy == STATED:
            return self._by_score(rows, count)
        if level == len(self._area.levels):
            return self._over_parts(np.arange(len(rows)), rows, level, count)
        return self._over_parts(self._area.levels[level][rows], rows, level, count)

    def _by_score(self, rows: Rows, count: int) -> None:
        """The best node first, as for work without levels."""
        order = rows[np.lexsort((rows, -self._score[rows]))]
        before = np.cumsum(self._slots[order]) - self._slots[order]
        self._counts[order] = np.clip(count - before, 0, self._slots[order])

    def _over_parts(self, part: IntArray, rows: Rows, level: int, count: int) -> None:
        """Divide the pods over the domains of one level, or over nodes."""
        known, part = np.unique(part, return_inverse=True)
        room = np.bincount(part, self._slots[rows], len(known)).astype(np.int64)
        if self._area.strategy == DISTRIBUTED:
            given = even_shares(room, count)
        else:
            if self._limits is not None and level < len(self._limits.room) and int(room.max()) < count:
                room = np.minimum(room, self._limits.room[level][known])
            given = self._in_few(part, rows, room, count)
            if self._area.strategy == BALANCED and np.count_nonzero(given) > 1:
                given = _evened(room, given, count)
        for at in np.flatnonzero(given).tolist():
            inside = rows[part == at]
            if level == len(self._area.levels):
                self._counts[inside] = given[at]
            else:
                self.divide(inside, level + 1, int(given[at]))

    def _in_few(self, part: IntArray, rows: Rows, room: IntArray, count: int) -> IntArray:
        """As few domains as possible: one that is just large enough, else the roomiest and then the others."""
        given = np.zeros(len(room), np.int64)
        ours = np.bincount(part, self._area.pods[rows], len(room))
        is_empty = np.bincount(part, self._area.is_used[rows], len(room)) == 0
        score = np.full(len(room), -_LAST, np.int64)
        np.maximum.at(score, part, self._score[rows])
        roomiest = np.lexsort((np.arange(len(room)), -score, -ours, -room))
        before = np.cumsum(room[roomiest]) - room[roomiest]
        whole = int(np.argmax(count - before <= room[roomiest]))  # so many are filled before one takes the rest
        given[roomiest[:whole]] = room[roomiest[:whole]]
        rest = count - int(before[whole])
        fits = np.flatnonzero((room >= rest) & (given == 0))
        # Where its own pods are; then no empty domain; then the tightest; then the best nodes.
        order = np.lexsort((fits, -score[fits], room[fits], is_empty[fits], -ours[fits]))
        given[fits[order[0]]] = rest
        return given


def even_shares(room: IntArray, count: int) -> IntArray:
    """Parts that are as equal as the room allows; those with more room get what is left over."""
    given = np.zeros(len(room), np.int64)
    order = np.argsort(room, kind="stable").tolist()
    left = count
    for done, at in enumerate(order):
        given[at] = min(int(room[at]), left // (len(order) - done))
        left -= int(given[at])
    for at in reversed(order):  # what rounding left
        more = min(left, int(room[at] - given[at]))
        given[at] += more
        left -= more
    return given


def _evened(room: IntArray, given: IntArray, count: int) -> IntArray:
    """The same number of domains with parts that are as equal as possible."""
    chosen = np.flatnonzero(given)
    evened = np.zeros(len(room), np.int64)
    evened[chosen] = even_shares(room[chosen], count)
    return evened
