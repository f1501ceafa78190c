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
    if area.strategy == STATED:
        limits = limits_at_best_rate(area._replace(levels=()), slots, score, count)
        return _as_stated(slots if limits is None else limits.slots, score, area, count)
    limits = limits_at_best_rate(area, slots, score, count)
    slots = slots if limits is None else limits.slots
    rows = np.flatnonzero(slots > 0)
    counts = np.zeros(len(slots), np.int64)
    division = _Division(slots, score, area, counts, limits)
    division.divide(rows, 0, min(count, int(slots[rows].sum())))
    used = np.flatnonzero(counts)
    used = used[np.lexsort((used, *(level[used] for level in reversed(area.levels))))]
    return [NodePods(row, pods) for row, pods in zip(used.tolist(), counts[used].tolist(), strict=True)]


def _as_stated(slots: IntArray, score: IntArray, area: PlacementArea, count: int) -> list[NodePods]:
    """The best node first, as for work without levels. Where no preferred domain holds all pods, those with pods of the
    workload come first, then the roomiest; of equal ones the last, as in KAI-Scheduler."""
    rows = np.flatnonzero(slots > 0)
    keys: list[IntArray] = [rows, -score[rows]]
    for level in reversed(area.levels):
        known, part = np.unique(level[rows], return_inverse=True)
        room = np.where(known < 0, 0, np.bincount(part, slots[rows], len(known)))
        ours = np.bincount(part, area.pods[rows], len(known))
        rank = np.zeros(len(known), np.int64)
        rank[np.lexsort((-known, -room, -ours))] = np.arange(len(known))
        keys.append(rank[part])
    order = rows[np.lexsort(keys)]
    before = np.cumsum(slots[order]) - slots[order]
    given = np.clip(count - before, 0, slots[order])
    return [NodePods(row, pods) for row, pods in zip(order.tolist(), given.tolist(), strict=True) if pods]


class _Division:
    def __init__(
        self, slots: IntArray, score: IntArray, area: PlacementArea, counts: IntArray, limits: RateLimits | None
    ) -> None:
        self._slots, self._score, self._area, self._counts, self._limits = slots, score, area, counts, limits

    def divide(self, rows: Rows, level: int, count: int, is_part: bool = False) -> None:
        """Put `count` pods on these nodes, which have room for them. `is_part`: others are in other domains."""
        if not count:
            return
        if level == len(self._area.levels):
            return self._over_parts(np.arange(len(rows)), rows, level, count, is_part)
        return self._over_parts(self._area.levels[level][rows], rows, level, count, is_part)

    def _over_parts(self, part: IntArray, rows: Rows, level: int, count: int, is_part: bool) -> None:
        """Divide the pods over the domains of one level, or over nodes."""
        known, part = np.unique(part, return_inverse=True)
        room = self._room(part, rows, level, len(known))
        if self._area.strategy == DISTRIBUTED:
            given = even_shares(room, count)
        else:
            uses_links = is_part or int(room.max()) < count  # those out of the domains of this level
            if self._limits is not None and level < len(self._limits.room) and uses_links:
                room = np.minimum(room, self._limits.room[level][known])
            given = self._in_few(part, rows, room, count)
            if self._area.strategy == BALANCED and np.count_nonzero(given) > 1:
                given = _evened(room, given, count)
        for at in np.flatnonzero(given).tolist():
            inside = rows[part == at]
            if level == len(self._area.levels):
                self._counts[inside] = given[at]
            else:
                self.divide(inside, level + 1, int(given[at]), is_part or bool(np.count_nonzero(given) > 1))

    def _room(self, part: IntArray, rows: Rows, level: int, size: int) -> IntArray:
        """What each domain takes: its slots, and no more than the limits of the domains inside it."""
        limits = self._limits.room if self._limits is not None and self._area.strategy != DISTRIBUTED else ()
        if level + 1 >= len(limits):
            return np.bincount(part, self._slots[rows], size).astype(np.int64)
        inside, of_node = np.unique(self._area.levels[level + 1][rows], return_inverse=True)
        owner = np.zeros(len(inside), np.int64)
        owner[of_node] = part
        room = np.minimum(np.bincount(of_node, self._slots[rows], len(inside)), limits[level + 1][inside])
        return np.bincount(owner, room, size).astype(np.int64)

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
