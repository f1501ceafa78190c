"""How many pods each domain of an area may take, so that the slowest share of a link is as fast as possible.

In:    how many pods fit on each node, the rates of the links, and who uses them.   Out: limits for every level inside
the area, or None where rates decide nothing.

The nodes of a domain share its links with all active nodes there. At a given rate, a domain therefore takes at most as
many nodes as its links carry at that rate, less those that are active, and no more than the domains inside it take. The
best rate is the highest at which all domains together still take the pods.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.topology.link_use import ActiveNodes, AskedBandwidth, port_rates
from kaiwo.topology.network_rates import NOT_KNOWN, NetworkRates

_NO_LIMIT = 1 << 40


class AreaNetwork(NamedTuple):
    rates: NetworkRates
    active: ActiveNodes  # the nodes whose traffic is on the links now
    asked: AskedBandwidth  # what others have asked for
    need_mb_s: int = 0  # what each pod asks for; 0: whatever there is


class PlacementArea(NamedTuple):
    """The nodes that some pods may use, and the levels inside."""

    mask: BoolArray  # by row
    levels: tuple[IntArray, ...]  # the number of each node's domain, for each level inside, the widest first
    strategy: str
    is_used: BoolArray  # by row: other work runs there
    pods: IntArray  # by row: pods that belong to the same part of the workload
    network: AreaNetwork | None = None  # None: the rates of its links are not known


class RateLimits(NamedTuple):
    slots: IntArray  # by row: what is left of the slots
    room: tuple[IntArray, ...]  # for each level but the narrowest, by domain (the last: nodes without one)


class _Links(NamedTuple):
    """One kind of link out of the domains of a level, or out of the leaves of one rail."""

    rate: IntArray  # by domain: MB/s of all rails, if this is one of them; -1: not known
    port: int  # MB/s of the slowest node; more helps nobody
    left: IntArray  # by domain: of the rate, what others have not asked for
    active: IntArray  # by domain: other nodes that send over these links now
    used: IntArray  # by domain: other nodes with work, which may do so at any time


class _Level(NamedTuple):
    """Domains are numbered as in the area; the last number stands for nodes without a domain."""

    wider: IntArray  # by domain: its domain on the level before; all 0 on the widest
    pods: IntArray  # by domain and number of nodes: the pods that this many of its nodes take, the roomiest first
    links: tuple[_Links, ...]


def limits_at_best_rate(area: PlacementArea, slots: IntArray, score: IntArray, count: int) -> RateLimits | None:
    """Of the divisions with the best rate, the one that would be fastest if all nodes in use were active.

    None: the rates are not known, or one domain of the narrowest level holds all pods, which then use no such links.
    Pods that need some bandwidth take only so many places as the ports and links still carry.
    """
    if area.network is None:
        return None
    need_mb_s = area.network.need_mb_s
    slots = _slots_of_ports(area.network, slots) if need_mb_s else slots
    rows = np.flatnonzero(slots > 0)
    unlimited = RateLimits(slots, ()) if need_mb_s else None
    if not area.levels or not len(rows):
        return unlimited
    narrowest = np.bincount(_numbered(area.levels[-1])[rows], slots[rows])
    if int(narrowest.max()) >= count or int(narrowest.sum()) < count:
        return unlimited
    levels = _levels_of(area, slots, rows)
    if not any(level.links for level in levels):
        return unlimited
    limits = [level.pods[:, -1] for level in levels]
    if need_mb_s:
        limits = _room_at(1, levels, [_pods_of_bandwidth(level, need_mb_s) for level in levels], False)
        if int(limits[0].sum()) < count:
            return RateLimits(np.zeros(len(slots), np.int64), ())
    for counts_used in (False, True):
        limits = _at_best_rate(levels, limits, counts_used, count)
    return RateLimits(_limited(area.levels[-1], slots, score, limits[-1]), tuple(limits[:-1]))


def pods_with_bandwidth(area: PlacementArea, slots: IntArray) -> int:
    """At most how many pods that need some bandwidth could run together: on one node, in one domain of the narrowest
    level, or over all domains with what their links have left."""
    assert area.network is not None, "without rates nothing is computed"
    by_ports = _slots_of_ports(area.network, slots)
    rows = np.flatnonzero(by_ports > 0)
    on_one = int(slots.max(initial=0))
    if not len(rows):
        return on_one
    if not area.levels:
        return max(on_one, int(by_ports.sum()))
    levels = _levels_of(area, by_ports, rows)
    room = _room_at(1, levels, [_pods_of_bandwidth(level, area.network.need_mb_s) for level in levels], False)
    narrowest = np.bincount(_numbered(area.levels[-1])[rows], by_ports[rows])
    return max(on_one, int(narrowest.max()), int(room[0].sum()))


def _slots_of_ports(network: AreaNetwork, slots: IntArray) -> IntArray:
    """What is left of the slots where each pod needs a part of the node's ports; one node alone uses no ports."""
    if np.count_nonzero(slots > 0) < 2:
        return slots
    rate = port_rates(network.rates)
    left = np.maximum(rate - network.asked.ports, 0) // network.need_mb_s
    return np.where(rate == NOT_KNOWN, slots, np.minimum(slots, left))


def _pods_of_bandwidth(level: _Level, need_mb_s: int) -> IntArray:
    """By domain: the pods that its nodes take and whose need its links still carry."""
    most: IntArray = level.pods[:, -1]
    for links in level.links if need_mb_s else ():
        most = np.where(links.rate == NOT_KNOWN, most, np.minimum(most, np.maximum(links.left, 0) // need_mb_s))
    return most


def _at_best_rate(levels: list[_Level], limits: list[IntArray], counts_used: bool, count: int) -> list[IntArray]:
    """At most `limits`, and `count` pods in all, at the highest rate that allows so many."""
    shares = [_shares(links, counts_used, level.pods.shape[1]) for level in levels for links in level.links]
    rates = np.unique(np.concatenate(shares))
    rates = rates[rates > 0]
    low, high = 0, len(rates) - 1
    while low <= high:
        middle = (low + high) // 2
        room = _room_at(int(rates[middle]), levels, limits, counts_used)
        if int(room[0].sum()) >= count:
            limits, low = room, middle + 1
        else:
            high = middle - 1
    return limits


def _room_at(rate: int, levels: list[_Level], limits: list[IntArray], counts_used: bool) -> list[IntArray]:
    """By level and domain: the pods that it takes at this rate; a wider one no more than those inside it."""
    found: list[IntArray] = []
    inside: IntArray | None = None
    for level, most in zip(reversed(levels), reversed(limits), strict=True):
        nodes = np.full(len(level.pods), level.pods.shape[1] - 1, np.int64)
        for links in level.links:
            others = links.used if counts_used else links.active
            by_links = np.where(links.rate == NOT_KNOWN, nodes, links.rate // rate - others)
            nodes = np.minimum(nodes, np.maximum(by_links, 0))
        room = np.minimum(level.pods[np.arange(len(nodes)), nodes], most)
        if inside is not None:
            room = np.minimum(room, np.pad(inside, (0, len(room) - len(inside))))
        found.append(room)
        inside = np.bincount(level.wider, room).astype(np.int64)
    return found[::-1]


def _shares(links: _Links, counts_used: bool, most: int) -> IntArray:
    """Every share that a node can have: the links of a domain over the number of its active nodes."""
    others = links.used if counts_used else links.active
    shares = links.rate[:, None] // np.maximum(others[:, None] + np.arange(1, most + 1), 1)
    found: IntArray = np.minimum(shares, links.port).ravel() if links.port > 0 else shares.ravel()
    return found


def _numbered(domains: IntArray) -> IntArray:
    """Nodes without a domain get a number of their own, the last."""
    return np.where(domains >= 0, domains, int(domains.max(initial=-1)) + 1)


def _levels_of(area: PlacementArea, slots: IntArray, rows: Rows) -> list[_Level]:
    found = []
    wider = np.zeros(len(slots), np.int64)
    for at, domains in enumerate(area.levels):
        numbers, size = _numbered(domains), int(domains.max(initial=-1)) + 2
        above = np.zeros(size, np.int64)
        above[numbers[area.mask]] = wider[area.mask]
        links = _links_of(area, slots, rows, at)
        found.append(_Level(above, _pods_by_nodes(slots[rows], numbers[rows], size), tuple(links)))
        wider = numbers
    return found


def _pods_by_nodes(slots: IntArray, domains: IntArray, size: int) -> IntArray:
    order = np.lexsort((-slots, domains))
    owner, ordered = domains[order], slots[order]
    at = np.arange(len(order)) - np.searchsorted(owner, owner)
    table = np.zeros((size, int(at.max(initial=-1)) + 2), np.int64)
    table[owner, at + 1] = ordered
    summed: IntArray = np.cumsum(table, axis=1)
    return summed


def _links_of(area: PlacementArea, slots: IntArray, rows: Rows, level: int) -> list[_Links]:
    """The links of a level: those of the leaves of each rail, or those of a wider level."""
    assert area.network is not None, "without rates nothing is computed"
    rates, active, asked, _ = area.network
    domains, is_narrowest = area.levels[level], level == len(area.levels) - 1
    numbers, size = _numbered(domains), int(domains.max(initial=-1)) + 2
    others = slots <= 0  # its own nodes are counted when it takes them
    used = np.bincount(numbers[others & area.is_used], minlength=size)
    found = []
    every = zip(rates.rails, active.rails, asked.rails, strict=True)
    rails = [each for each, is_common in zip(every, _common_rails(rates, rows), strict=True) if is_common]
    for rail, sends, taken in rails if is_narrowest else ():
        leaves, known = rail.leaf_of_node[rows], rail.leaf_of_node[rows] >= 0
        pairs = np.unique(np.stack([numbers[rows][known], leaves[known]]), axis=1)
        rate = np.zeros(size, np.int64)
        np.add.at(rate, pairs[0], rail.uplink_mb_s[pairs[1]] * len(rails))
        rate[pairs[0][rail.uplink_mb_s[pairs[1]] == NOT_KNOWN]] = NOT_KNOWN
        rate[-1] = NOT_KNOWN
        left = rate.copy()
        np.add.at(left, pairs[0], -taken[pairs[1]] * len(rails))
        ports = rail.port_mb_s[rows]
        slowest = int(ports[ports > 0].min(initial=_NO_LIMIT)) * len(rails)
        found.append(
            _Links(rate, slowest, left, _sending(numbers, others & (sends > 0), active.busy_permille, size), used)
        )
    for tier, sends, taken in zip(rates.tiers, active.tiers, asked.tiers, strict=True):
        if np.array_equal(tier.domain_of_node, domains):
            rate = np.append(tier.uplink_mb_s, NOT_KNOWN)
            left = np.append(tier.uplink_mb_s - taken, NOT_KNOWN)
            found.append(
                _Links(rate, 0, left, _sending(numbers, others & (sends > 0), active.busy_permille, size), used)
            )
    return [each for each in found if (each.rate != NOT_KNOWN).any()]


def _common_rails(rates: NetworkRates, rows: Rows) -> list[bool]:
    """Data is spread over the rails that all nodes have; nodes without any port do not count. All, if there is none."""
    on_rail = np.stack([rail.leaf_of_node[rows] >= 0 for rail in rates.rails])
    common = [bool(each.all()) for each in on_rail[:, on_rail.any(axis=0)]]
    return common if any(common) else [True] * len(common)


def _sending(numbers: IntArray, sends: BoolArray, busy_permille: IntArray | None, size: int) -> IntArray:
    """By domain: the nodes that send, as many as their ports were measured to be busy, rounded up."""
    if busy_permille is None:
        return np.bincount(numbers[sends], minlength=size)
    found: IntArray = -(-np.bincount(numbers[sends], busy_permille[sends], size).astype(np.int64) // 1000)
    return found


def _limited(domains: IntArray, slots: IntArray, score: IntArray, most: IntArray) -> IntArray:
    """The slots of the roomiest and best nodes of each domain, up to its limit."""
    rows = np.flatnonzero(slots > 0)
    part = _numbered(domains)[rows]
    order = np.lexsort((rows, -score[rows], -slots[rows], part))
    owner, ordered = part[order], slots[rows[order]]
    before = np.cumsum(ordered) - ordered
    before -= before[np.searchsorted(owner, owner)]
    left = np.zeros(len(slots), np.int64)
    left[rows[order]] = np.clip(most[owner] - before, 0, ordered)
    return left
