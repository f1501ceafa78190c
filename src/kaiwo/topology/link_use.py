"""Whose traffic is on the links out of nodes and domains: that of workloads whose pods run in several of them.

In:    the rates of a network, and where the pods of each workload run.   Out: by link, the nodes that are active on it,
and the bandwidth that workloads have asked for.
Never: counts a workload on a link that it does not cross: one that stays in a leaf uses none of the leaf's uplinks.

A `LinkUse` follows the log of a working copy: what a trial places and undoes is added and taken away again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.model.network.port import NetworkPort
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.working_copy import PodMove
from kaiwo.topology.network_rates import NOT_KNOWN, NetworkRates

NeedOf = Callable[[str], int]  # by workload: MB/s of each pod; 0: it asks for none


class ActiveNodes(NamedTuple):
    """By node, above 0: another workload there sends over the links out of the node's domain."""

    rails: tuple[IntArray, ...]  # out of the node's leaf, by rail
    tiers: tuple[IntArray, ...]  # out of its wider domains, by tier
    busy_permille: IntArray | None = None  # by node: how busy its ports are; None: not measured, so all are fully busy


class AskedBandwidth(NamedTuple):
    """What workloads have asked for on each link, in MB/s."""

    ports: IntArray  # by node, over all its rails together
    rails: tuple[IntArray, ...]  # by rail and leaf: on the leaf's uplinks
    tiers: tuple[IntArray, ...]  # by tier and domain


def everywhere(active: IntArray, rates: NetworkRates) -> ActiveNodes:
    """The same nodes are active on every link."""
    return ActiveNodes((active,) * len(rates.rails), (active,) * len(rates.tiers))


class _Crossing(NamedTuple):
    """The links that one workload crosses, and how much it sends over each."""

    rows: IntArray
    rails: tuple[BoolArray, ...]  # by rail: for each row, whether it crosses the leaf's uplinks
    tiers: tuple[BoolArray, ...]
    sent_mb_s: IntArray  # for each row


class LinkUse:
    def __init__(
        self,
        rates: NetworkRates,
        need_of: NeedOf,
        places: Mapping[str, Sequence[int]],
        busy_permille: IntArray | None = None,
    ) -> None:
        """`places`: the row of each pod, by workload."""
        self.rates = rates
        self._need_of, self._begun = need_of, places
        self._places: dict[str, Counter[int]] = {}  # of workloads that were looked at
        self._followed: list[PodMove] = []
        self.active = _active(rates, places)._replace(busy_permille=busy_permille)
        self.asked = _no_bandwidth(rates)
        for name in places:
            if (need := need_of(name)) and len(rows := self._pods_by_row(name)) > 1:
                _add_asked(rates, self.asked, crossing_of(rates, rows, need), +1)
        self.asked_at_start = _copy(self.asked)

    def follow(self, moves: Sequence[PodMove]) -> None:
        """Take over what the log has gained or lost since the last call. The log only grows and shrinks at its end."""
        done = self._followed
        while done and (len(done) > len(moves) or done[-1] is not moves[len(done) - 1]):
            self._apply(done.pop(), -1)
        for move in moves[len(done) :]:
            self._apply(move, +1)
            done.append(move)

    def without(self, workload: str) -> tuple[ActiveNodes, AskedBandwidth]:
        """What others use: the same without one workload's own traffic."""
        rows = self._pods_by_row(workload)
        if len(rows) < 2:
            return self.active, self.asked
        self._count(workload, rows, -1)
        found = (
            self.active._replace(
                rails=tuple(each.copy() for each in self.active.rails),
                tiers=tuple(each.copy() for each in self.active.tiers),
            ),
            _copy(self.asked),
        )
        self._count(workload, rows, +1)
        return found

    def pods_of(self, workload: str) -> Counter[int]:
        """By row: its pods, those that were placed in this cycle among them."""
        return +self._pods_by_row(workload)

    def _pods_by_row(self, workload: str) -> Counter[int]:
        if workload not in self._places:
            self._places[workload] = Counter(self._begun.get(workload, ()))
        return self._places[workload]

    def _apply(self, move: PodMove, sign: int) -> None:
        rows = self._pods_by_row(move.workload)
        self._count(move.workload, rows, -1)
        for row in move.rows:
            rows[row] += sign * move.sign
            if not rows[row]:
                del rows[row]
        self._count(move.workload, rows, +1)

    def _count(self, workload: str, rows: Counter[int], sign: int) -> None:
        rows = +rows  # the only pod of a workload is not known before it leaves its node: there, it counts -1
        if len(rows) < 2:
            return
        need = self._need_of(workload)
        crossing = crossing_of(self.rates, rows, need)
        for counts, crosses in zip(self.active.rails, crossing.rails, strict=True):
            counts[crossing.rows[crosses]] += sign
        for counts, crosses in zip(self.active.tiers, crossing.tiers, strict=True):
            counts[crossing.rows[crosses]] += sign
        if need:
            _add_asked(self.rates, self.asked, crossing, sign)


def crossing_of(rates: NetworkRates, pods: Mapping[int, int], need_mb_s: int = 0) -> _Crossing:
    """`pods` by row, on two nodes at least."""
    rows = np.fromiter(pods, np.int64, len(pods))
    sent = np.fromiter(pods.values(), np.int64, len(pods)) * need_mb_s
    return _Crossing(
        rows,
        tuple(_crosses(rail.leaf_of_node[rows]) for rail in rates.rails),
        tuple(_crosses(tier.domain_of_node[rows]) for tier in rates.tiers),
        sent,
    )


def has_bandwidth(
    rates: NetworkRates,
    asked: AskedBandwidth,
    pods: Mapping[int, int],
    need_mb_s: int,
    at_start: AskedBandwidth
    | None = None,  # what was asked for already is carried again, even on a link that lost ports
) -> bool:
    """Whether the links carry what these pods (by row) need beside what others have asked for.

    Pods on one node use no links, and a link whose rate is not known limits nothing.
    """
    if len(pods) < 2:
        return True
    own = _no_bandwidth(rates)
    _add_asked(rates, own, crossing_of(rates, pods, need_mb_s), +1)
    before = at_start or _no_bandwidth(rates)
    links = [(port_rates(rates), own.ports, asked.ports, before.ports)]
    links += zip((rail.uplink_mb_s for rail in rates.rails), own.rails, asked.rails, before.rails, strict=True)
    links += zip((tier.uplink_mb_s for tier in rates.tiers), own.tiers, asked.tiers, before.tiers, strict=True)
    return all(
        bool(((ours == 0) | (rate < 0) | (ours + others <= np.maximum(rate, start))).all())
        for rate, ours, others, start in links
    )


def port_rates(rates: NetworkRates) -> IntArray:
    """By node: MB/s of its ports on all rails together; -1: not known."""
    ports = np.stack([rail.port_mb_s for rail in rates.rails])
    found: IntArray = np.where((ports < 0).all(axis=0), NOT_KNOWN, np.maximum(ports, 0).sum(axis=0))
    return found


def _no_bandwidth(rates: NetworkRates) -> AskedBandwidth:
    return AskedBandwidth(
        np.zeros(len(rates.pair_mb_s), np.int64),
        tuple(np.zeros(len(rail.uplink_mb_s), np.int64) for rail in rates.rails),
        tuple(np.zeros(len(tier.uplink_mb_s), np.int64) for tier in rates.tiers),
    )


def _copy(asked: AskedBandwidth) -> AskedBandwidth:
    return AskedBandwidth(asked.ports.copy(), *(tuple(each.copy() for each in part) for part in asked[1:]))


def _active(rates: NetworkRates, places: Mapping[str, Sequence[int]]) -> ActiveNodes:
    """All workloads at once: one after the other would take 40 ms for 1,000 gangs."""
    sizes = np.array([len(rows) for rows in places.values()], np.int64)
    rows = np.fromiter((row for each in places.values() for row in each), np.int64, int(sizes.sum()))
    gang = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.unique(gang * max(1, len(rates.pair_mb_s)) + rows)  # a node counts once for each workload
    gang, rows = np.divmod(pairs, max(1, len(rates.pair_mb_s)))
    rails = tuple(_active_in(rail.leaf_of_node, gang, rows) for rail in rates.rails)
    return ActiveNodes(rails, tuple(_active_in(tier.domain_of_node, gang, rows) for tier in rates.tiers))


def _active_in(domain_of_node: IntArray, gang: IntArray, rows: IntArray) -> IntArray:
    """By node: how many workloads there also run in another domain."""
    known = domain_of_node[rows] >= 0
    gang, rows = gang[known], rows[known]
    if not len(gang):
        return np.zeros(len(domain_of_node), np.int64)
    domains = domain_of_node[rows]
    starts = np.flatnonzero(np.append(True, gang[1:] != gang[:-1]))
    lowest, highest = np.minimum.reduceat(domains, starts), np.maximum.reduceat(domains, starts)
    crosses = np.repeat(lowest != highest, np.diff(np.append(starts, len(gang))))
    found: IntArray = np.bincount(rows[crosses], minlength=len(domain_of_node))
    return found


def _add_asked(rates: NetworkRates, asked: AskedBandwidth, crossing: _Crossing, sign: int) -> None:
    rows, sent = crossing.rows, crossing.sent_mb_s
    asked.ports[rows] += sign * sent
    leaves_of = [rail.leaf_of_node[rows] for rail in rates.rails]
    has_ports = np.any([leaves >= 0 for leaves in leaves_of], axis=0) if leaves_of else np.zeros(len(rows), np.bool_)
    common = [at for at, leaves in enumerate(leaves_of) if (leaves >= 0)[has_ports].all()]
    for at in common:  # data is spread evenly over the rails that all nodes have; nodes without any are not known
        crosses = crossing.rails[at]
        np.add.at(asked.rails[at], leaves_of[at][crosses], sign * -(-sent[crosses] // len(common)))
    for at, tier in enumerate(rates.tiers):
        crosses = crossing.tiers[at]
        np.add.at(asked.tiers[at], tier.domain_of_node[rows][crosses], sign * sent[crosses])


def _crosses(domains: IntArray) -> BoolArray:
    """Whether each node's traffic leaves its domain: some of the nodes are in another one."""
    known = domains[domains >= 0]
    crosses: BoolArray = (domains >= 0) & bool(len(known) and int(known.min()) != int(known.max()))
    return crosses


def busy_permille(ports: Mapping[str, tuple[NetworkPort, ...]], row: Mapping[str, int]) -> IntArray | None:
    """By node: the traffic of its ports over their rate, in thousandths; where it was not measured, all of it."""
    found: IntArray | None = None
    for node, each in ports.items():
        rate = sum(port.mb_s for port in each if port.is_up and port.used_mb_s >= 0)
        if rate and node in row:
            found = np.full(len(row), 1000, np.int64) if found is None else found
            used = sum(port.used_mb_s for port in each if port.is_up and port.used_mb_s >= 0)
            found[row[node]] = min(1000, -(-1000 * used // rate))
    return found
