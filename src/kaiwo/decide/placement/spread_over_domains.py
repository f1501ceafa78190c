"""Divide equal pods over the nodes of an area: in as few domains as possible, or evenly, on every level.

In:    how many pods fit on each node, and the levels inside the area.   Out: nodes with numbers of pods, in the order
of domains, so that pods with neighbouring indices are near each other.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.model.network.constraint import BALANCED, DISTRIBUTED, STATED
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.topology.network_rates import NOT_KNOWN, NetworkRates

_LAST = 1 << 40  # after all others


class PlacementArea(NamedTuple):
    """The nodes that some pods may use, and the levels inside."""

    mask: BoolArray  # by row
    levels: tuple[IntArray, ...]  # the number of each node's domain, for each level inside, the widest first
    strategy: str
    is_used: BoolArray  # by row: other work runs there
    pods: IntArray  # by row: pods that belong to the same part of the workload
    network: NetworkRates | None = None  # None: the rates of its links are not known


class NodePods(NamedTuple):
    row: int
    pods: int


def pods_by_node(slots: IntArray, score: IntArray, area: PlacementArea, count: int) -> list[NodePods]:
    """Where `count` pods go; fewer when not all of them fit. `slots` are those inside the area."""
    slots = _at_best_rate(slots, score, area, count)
    rows = np.flatnonzero(slots > 0)
    counts = np.zeros(len(slots), np.int64)
    _Division(slots, score, area, counts).divide(rows, 0, min(count, int(slots[rows].sum())))
    used = np.flatnonzero(counts)
    if area.strategy == STATED:
        used = used[np.lexsort((used, -score[used]))]
    else:
        used = used[np.lexsort((used, *(level[used] for level in reversed(area.levels))))]
    return [NodePods(row, pods) for row, pods in zip(used.tolist(), counts[used].tolist(), strict=True)]


class _Division:
    def __init__(self, slots: IntArray, score: IntArray, area: PlacementArea, counts: IntArray) -> None:
        self._slots, self._score, self._area, self._counts = slots, score, area, counts

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
            # The narrowest level was limited before, over all wider domains together.
            if self._area.network is not None and level < len(self._area.levels) - 1 and int(room.max()) < count:
                room = rooms_at_best_rate(self._area, self._slots, rows, level, part, count)
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


class _Uplinks(NamedTuple):
    """One kind of link out of the domains of a level."""

    rate: IntArray  # by part: MB/s of its working links; -1: not known
    port: int  # MB/s of the slowest port of a node; more helps nobody


def _at_best_rate(slots: IntArray, score: IntArray, area: PlacementArea, count: int) -> IntArray:
    """What is left of the slots so that no domain of the narrowest level takes more pods than its uplinks are good for.

    Where one domain holds all pods, they use no uplinks, and nothing is limited.
    """
    if area.network is None or not area.levels:
        return slots
    rows = np.flatnonzero((slots > 0) & (area.levels[-1] >= 0))
    if not len(rows):
        return slots
    _, part = np.unique(area.levels[-1][rows], return_inverse=True)
    room = np.bincount(part, slots[rows]).astype(np.int64)
    if int(room.max()) >= count or int(room.sum()) < count:
        return slots
    most = rooms_at_best_rate(area, slots, rows, len(area.levels) - 1, part, count)
    order = np.lexsort((rows, -score[rows], -slots[rows], part))
    owner, ordered = part[order], slots[rows[order]]
    before = np.cumsum(ordered) - ordered
    before -= before[np.searchsorted(owner, owner)]
    left = np.zeros(len(slots), np.int64)
    left[rows[order]] = np.clip(most[owner] - before, 0, ordered)
    return left


def rooms_at_best_rate(
    area: PlacementArea, slots: IntArray, rows: Rows, level: int, part: IntArray, count: int
) -> IntArray:
    """By domain: how many pods it may take so that the slowest share of its uplinks is as fast as possible.

    Nodes whose job leaves their domain share its uplinks with all active nodes there. So the best rate is the highest
    at which all domains together still take the pods.
    """
    size = int(part.max(initial=-1)) + 1
    table = _room_by_nodes(slots[rows], part, size)
    plain: IntArray = table[:, -1]
    links = _uplinks_of(area, rows, level, part, size)
    if not links:
        return plain
    domains, numbers = area.levels[level], np.zeros(size, np.int64)
    numbers[part] = domains[rows]
    others = np.array([int((area.is_used & (domains == number) & (slots <= 0)).sum()) for number in numbers], np.int64)
    rates = np.concatenate([_possible_rates(each, others, table.shape[1]) for each in links])
    rates = np.unique(rates[rates > 0])
    low, high, best = 0, len(rates) - 1, plain
    while low <= high:
        middle = (low + high) // 2
        room = _room_at(int(rates[middle]), links, others, table)
        if int(room.sum()) >= count:
            best, low = room, middle + 1
        else:
            high = middle - 1
    return best


def _room_by_nodes(slots: IntArray, part: IntArray, size: int) -> IntArray:
    """By domain and number of nodes: the pods that this many of its nodes take, the roomiest first."""
    order = np.lexsort((-slots, part))
    owner, ordered = part[order], slots[order]
    at = np.arange(len(order)) - np.searchsorted(owner, owner)
    table = np.zeros((size, int(at.max(initial=-1)) + 2), np.int64)
    table[owner, at + 1] = ordered
    summed: IntArray = np.cumsum(table, axis=1)
    return summed


def _room_at(rate: int, links: list[_Uplinks], others: IntArray, table: IntArray) -> IntArray:
    nodes = np.full(len(table), table.shape[1] - 1, np.int64)
    for each in links:
        by_links = np.where(each.rate == NOT_KNOWN, nodes, each.rate // rate - others)
        nodes = np.minimum(nodes, np.maximum(by_links, 0))
    room: IntArray = table[np.arange(len(table)), nodes]
    return room


def _possible_rates(links: _Uplinks, others: IntArray, most: int) -> IntArray:
    """Every share that a node can have: the links of a domain over the number of its active nodes."""
    shares = links.rate[:, None] // np.maximum(others[:, None] + np.arange(1, most + 1), 1)
    if links.port > 0:
        shares = np.minimum(shares, links.port)
    found: IntArray = shares.ravel()
    return found


def _uplinks_of(area: PlacementArea, rows: Rows, level: int, part: IntArray, size: int) -> list[_Uplinks]:
    """The links of a level: those of the leaves of each rail, or those of a wider level."""
    network, domains = area.network, area.levels[level]
    assert network is not None, "without rates nothing is computed"
    found = []
    is_last = level == len(area.levels) - 1
    for rail in network.rails if is_last else ():
        leaves, known = rail.leaf_of_node[rows], rail.leaf_of_node[rows] >= 0
        pairs = np.unique(np.stack([part[known], leaves[known]]), axis=1)
        rate = np.zeros(size, np.int64)
        np.add.at(rate, pairs[0], rail.uplink_mb_s[pairs[1]])
        rate[pairs[0][rail.uplink_mb_s[pairs[1]] == NOT_KNOWN]] = NOT_KNOWN
        ports = rail.port_mb_s[rows]
        found.append(_Uplinks(rate, int(ports[ports > 0].min(initial=1 << 40))))
    for tier in network.tiers:
        if np.array_equal(tier.domain_of_node, domains):
            rate = np.full(size, NOT_KNOWN, np.int64)
            rate[part] = tier.uplink_mb_s[tier.domain_of_node[rows]]
            found.append(_Uplinks(rate, 0))
    return [each for each in found if (each.rate != NOT_KNOWN).any()]
