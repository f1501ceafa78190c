"""Rank the domains of one level for some pods: those that could hold all of them, the best first.

Availability favours the tight fit, alignment few domains inside, utilisation domains in use, and performance those
that jobs ran well in. Work that would not fill an empty domain, or one inside an empty wider domain, comes to it last:
empty leaves stay whole for work that needs them. Every term is an integer from 0 to 1000.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.measured_performance import FULL, NEUTRAL
from kaiwo.model.policy import TopologyWeights
from kaiwo.snapshot.array_types import BoolArray, IntArray


class DomainTerms(NamedTuple):
    """What speaks for a domain, each from 0 to 1000."""

    availability: int
    alignment: int
    utilisation: int
    performance: int
    score: int


class PodsWanted(NamedTuple):
    """Pods of one shape: how many, how large, and how many fit on each node that may be used."""

    slots: IntArray  # by row
    pods: int
    milli: int  # of one pod, at least 1


class NodeUse(NamedTuple):
    """The state of the nodes, by row."""

    used: IntArray
    total: IntArray
    performance: IntArray | None = None  # see `measured_performance`; None: nothing is known


# Of a plugin: the numbers of domains, their terms (a row each), the weights; one score for each.
Strategy = Callable[[IntArray, IntArray, IntArray], IntArray]


class RankedDomain(NamedTuple):
    number: int
    terms: DomainTerms


class DomainRanking:
    """One level's domains for some pods."""

    def __init__(
        self, wider: Sequence[IntArray], domains: IntArray, inside: IntArray | None, wants: Sequence[PodsWanted]
    ) -> None:
        self._wider, self._domains, self._inside, self._wants = wider, domains, inside, wants
        self._size = int(domains.max(initial=-1)) + 1

    def ranked(
        self, use: NodeUse, weights: TopologyWeights, costs: IntArray | None = None, strategy: Strategy | None = None
    ) -> list[RankedDomain]:
        """The domains with room for all pods, by sums; where places have costs, the cheapest first."""
        chosen = np.flatnonzero(self._may_fit(use))
        if not len(chosen):
            return []
        terms = self._terms(chosen, use, weights)
        if strategy is not None:
            terms = (*terms[:-1], strategy(chosen, np.stack(terms[:-1], axis=1), _as_array(weights)))
        total = terms[-1]
        opens = self._opens_empty(chosen, use)
        price = self._prices(chosen, costs) if costs is not None else np.zeros(len(chosen), np.int64)
        order = np.lexsort((chosen, -total, opens, price))
        table = np.stack(terms, axis=1)[order].tolist()
        return [RankedDomain(int(number), DomainTerms(*row)) for number, row in zip(chosen[order], table, strict=True)]

    def _may_fit(self, use: NodeUse) -> BoolArray:
        """Each kind of pods by itself, and all of them beside each other by what they take of GPUs."""
        fits = np.ones(self._size, np.bool_)
        for each in self._wants:
            fits &= self._sum(each.slots) >= each.pods
        with_gpus = [each for each in self._wants if each.milli > 1]
        if len(with_gpus) > 1:
            taken = [each.slots * each.milli for each in with_gpus]
            room = np.minimum(np.maximum(use.total - use.used, np.max(taken, axis=0)), np.sum(taken, axis=0))
            fits &= self._sum(room) >= sum(each.pods * each.milli for each in with_gpus)
        return fits

    def _sum(self, values: IntArray) -> IntArray:
        return _sum_by(self._domains, values, self._size)

    def _terms(self, chosen: IntArray, use: NodeUse, weights: TopologyWeights) -> tuple[IntArray, ...]:
        need = sum(each.pods * each.milli for each in self._wants)
        room = np.sum([self._sum(each.slots) * each.milli for each in self._wants], axis=0)[chosen]
        availability = FULL * need // np.maximum(room, 1)
        used, total = self._sum(use.used)[chosen], self._sum(use.total)[chosen]
        utilisation = np.clip(FULL * used // np.maximum(total, 1), 0, FULL)
        alignment = self._alignment(chosen)
        performance = np.full(len(chosen), NEUTRAL, np.int64)
        if use.performance is not None:
            nodes = np.maximum(self._sum(np.ones(len(self._domains), np.int64))[chosen], 1)
            performance = np.clip(self._sum(use.performance)[chosen] // nodes, 0, FULL)
        every = (np.minimum(availability, FULL), alignment, utilisation, performance)
        shares = _as_array(weights).tolist()
        weighted = sum(share * term for share, term in zip(shares, every, strict=True))
        return (*every, weighted // max(1, sum(shares)))

    def _alignment(self, chosen: IntArray) -> IntArray:
        """The fewest domains inside that any of them needs for the pods, over those that each needs."""
        if self._inside is None:
            return np.full(len(chosen), FULL, np.int64)
        largest = max(self._wants, key=lambda each: each.pods * each.milli)
        needed = fewest_inside(self._domains, self._inside, largest.slots, largest.pods, self._size)[chosen]
        aligned: IntArray = FULL * int(needed.min()) // np.maximum(needed, 1)
        return aligned

    def _opens_empty(self, chosen: IntArray, use: NodeUse) -> IntArray:
        """On how many levels it would be the first to use a domain that it does not fill."""
        opened = np.zeros(len(chosen), np.int64)
        first = np.full(self._size, -1, np.int64)  # a node of each domain
        rows = np.flatnonzero(self._domains >= 0)
        first[self._domains[rows][::-1]] = rows[::-1]
        for domains in (*self._wider, self._domains):
            size = int(domains.max(initial=-1)) + 1
            if not size:
                continue
            at = domains[first[chosen]]
            used = _sum_by(domains, use.used, size)
            fills = np.ones(size, np.bool_)
            for each in self._wants:
                fills &= _sum_by(domains, each.slots, size) <= each.pods
            opened += (at >= 0) & (used[at] == 0) & ~fills[at]
        return opened

    def _prices(self, chosen: IntArray, costs: IntArray) -> IntArray:
        """What the cheapest places for all pods in each domain cost together."""
        largest = max(self._wants, key=lambda each: each.pods * each.milli)
        found = np.zeros(len(chosen), np.int64)
        for at, number in enumerate(chosen.tolist()):
            rows = np.flatnonzero((self._domains == number) & (largest.slots > 0))
            order = rows[np.argsort(costs[rows], kind="stable")]
            before = np.cumsum(largest.slots[order]) - largest.slots[order]
            found[at] = int((np.clip(largest.pods - before, 0, largest.slots[order]) * costs[order]).sum())
        return found


def fewest_inside(outer: IntArray, inner: IntArray, slots: IntArray, count: int, size: int) -> IntArray:
    """By outer domain: how many inner domains hold `count` pods at least, the roomiest first."""
    known = (outer >= 0) & (inner >= 0)
    parts = int(inner.max(initial=-1)) + 1
    room = _sum_by(inner, np.where(known, slots, 0), parts)
    outer_of = np.full(parts, -1, np.int64)
    outer_of[inner[known]] = outer[known]
    order = np.lexsort((-room, outer_of))
    order = order[outer_of[order] >= 0]
    owner, room = outer_of[order], room[order]
    before = np.cumsum(room) - room
    start = np.searchsorted(owner, owner)
    before -= before[start] if len(before) else 0
    needed = _sum_by(owner, (before < count).astype(np.int64), size)
    return np.maximum(needed, 1)


def _as_array(weights: TopologyWeights) -> IntArray:
    return np.array((weights.availability, weights.alignment, weights.utilisation, weights.performance), np.int64)


def is_used(use: NodeUse) -> BoolArray:
    used: BoolArray = use.used > 0
    return used


def _sum_by(domains: IntArray, values: IntArray, size: int) -> IntArray:
    inside = domains >= 0
    sums: IntArray = np.bincount(domains[inside], values[inside], size).astype(np.int64)
    return sums
