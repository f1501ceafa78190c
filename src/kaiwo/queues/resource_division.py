"""Divide pools among claims: what each deserves first, then the rest by rank and weight, in exact integers.

In:    one amount per pool (a parent's share of one resource), and claims on the pools.
Out:   every term of each claim's share. docs/fairness.md has the rule in words with worked numbers.
Only the end result is rounded, so a smaller weight never gains more than one unit by rounding.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.queue_table import INFINITE

# Amounts below 2**40 and weights below 2**22 keep `amount * weight` inside 64 bits.
MAX_AMOUNT = 1 << 40
MAX_WEIGHT = 1 << 22


class ShareClaims(NamedTuple):
    """One entry per claim, in any order."""

    pool: Rows
    rank: IntArray  # within a pool the lowest is served first
    quota: IntArray
    limit: IntArray
    request: IntArray
    weight: IntArray  # 0: never more than it deserves
    unit: IntArray  # over-quota parts are multiples of this, the last one excepted; the same within a pool
    age: IntArray  # between equal fractions the lowest is first; unique within a pool


class SurplusPart(NamedTuple):
    """What a claim gets of the rest, once all have what they deserve."""

    whole: IntArray  # its weight's part, rounded down; or all it wants
    remainder: IntArray  # its part of what rounding left over
    offered: IntArray  # what its rank divided by weight: `whole` is offered * weight / weights, rounded down
    weights: IntArray  # the sum of the weights that `offered` was divided by; 0 when it got all it wants, or nothing
    left: IntArray  # per pool: what no claim wanted or could have


def deserved(totals: IntArray, claims: ShareClaims) -> IntArray:
    """The least of quota, request and limit; an unlimited quota counts as the whole pool."""
    quota = np.where(claims.quota >= INFINITE, totals[claims.pool], claims.quota)
    return np.minimum(np.minimum(quota, claims.request), claims.limit)


def divide_surplus(rest: IntArray, claims: ShareClaims, has: IntArray, serves_fully: BoolArray) -> SurplusPart:
    """Divide `rest` (per pool) among the claims that want more than they have.

    The ranks of a pool are served in turn: all they want while it lasts; the rank where it runs out divides by weight,
    its parts rounded down. What rounding leaves over goes to the largest fractions of that rank: at once in pools that
    serve fully (see `PolicyRules`), elsewhere only if the lower ranks leave it.
    """
    order = np.lexsort((claims.age, claims.rank, claims.pool))
    sorted_claims = ShareClaims(*(column[order] for column in claims))
    want = np.minimum(sorted_claims.request, sorted_claims.limit) - has[order]
    want[(sorted_claims.weight <= 0) | (want < 0)] = 0
    part = _serve(np.minimum(rest, MAX_AMOUNT), sorted_claims, want, serves_fully)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return SurplusPart(part.whole[back], part.remainder[back], part.offered[back], part.weights[back], part.left)


def _serve(rest: IntArray, claims: ShareClaims, want: IntArray, serves_fully: BoolArray) -> SurplusPart:
    size, pool = len(want), claims.pool
    whole, remainder, offered, weights, fraction = (np.zeros(size, np.int64) for _ in range(5))
    if not size:
        return SurplusPart(whole, remainder, offered, weights, rest.copy())
    rank_of, first = _segments(pool, claims.rank)
    rank_pool = pool[first]
    left, open_want = rest.copy(), want.copy()
    while True:
        wanted = np.add.reduceat(open_want, first)
        running = np.cumsum(wanted) - wanted  # over all pools; what came before this pool is subtracted next
        before = running - running[np.searchsorted(rank_pool, rank_pool)]
        room = left[rank_pool] - before
        served = room >= wanted
        short = ~served & (room > 0)  # at most one rank a pool
        takes = served[rank_of] & (open_want > 0)
        whole[takes] = open_want[takes]
        at = np.flatnonzero(short[rank_of] & (open_want > 0))
        _divide_by_weight(at, rank_of, room, claims, open_want, (whole, offered, weights, fraction))
        left -= _sum_by(pool, np.where(takes, open_want, 0), len(left))
        if not len(at):
            break
        left -= _sum_by(pool[at], whole[at], len(left))
        given_at_once = at[serves_fully[pool[at]]]
        _give_remainder(given_at_once, rank_of, claims, want, (whole, remainder, fraction), left)
        # Only the ranks behind the one that ran short are still served, and only while something is left.
        last = np.full(len(left), -1)
        last[rank_pool[short]] = np.flatnonzero(short)
        reached = last[pool]
        open_want = np.where((reached >= 0) & (rank_of > reached) & (left[pool] > 0), open_want, 0)
        if not open_want.any():
            break
    _give_remainder(np.flatnonzero(fraction), rank_of, claims, want, (whole, remainder, fraction), left)
    return SurplusPart(whole, remainder, offered, weights, left)


def _divide_by_weight(
    at: Rows,
    rank_of: Rows,
    room: IntArray,
    claims: ShareClaims,
    want: IntArray,
    out: tuple[IntArray, IntArray, IntArray, IntArray],
) -> None:
    """A claim that wants no more than its part gets what it wants; the others divide the rest."""
    whole, offered, weights, fraction = out
    room = room.copy()
    while len(at):
        rank, weight = rank_of[at], claims.weight[at]
        total = _sum_by(rank, weight, len(room))[rank]
        exact = room[rank] * weight
        content = want[at] <= exact // total
        if not content.any():
            step = total * claims.unit[at]
            whole[at] = exact // step * claims.unit[at]
            fraction[at] = exact % step
            offered[at], weights[at] = room[rank], total
            return
        done = at[content]
        whole[done] = want[done]
        room -= _sum_by(rank_of[done], want[done], len(room))
        at = at[~content]


def _give_remainder(
    at: Rows,
    rank_of: Rows,
    claims: ShareClaims,
    want: IntArray,
    out: tuple[IntArray, IntArray, IntArray],
    left: IntArray,
) -> None:
    """One unit each, the largest fraction first, then the oldest; never more than it wants."""
    whole, remainder, fraction = out
    at = at[left[claims.pool[at]] > 0]
    if not len(at):
        return
    at = at[np.lexsort((claims.age[at], -fraction[at], rank_of[at]))]
    pool = claims.pool[at]
    most = np.minimum(claims.unit[at], want[at] - whole[at])
    running = np.cumsum(most) - most
    before = running - running[np.searchsorted(pool, pool)]
    gift = np.clip(left[pool] - before, 0, most)
    remainder[at] = gift
    fraction[at] = 0
    left -= _sum_by(pool, gift, len(left))


def _segments(pool: Rows, rank: IntArray) -> tuple[Rows, Rows]:
    """Number the runs of equal pool and rank: per claim its run, per run its first claim."""
    starts = np.ones(len(pool), np.bool_)
    starts[1:] = (pool[1:] != pool[:-1]) | (rank[1:] != rank[:-1])
    return np.cumsum(starts) - 1, np.flatnonzero(starts)


def _sum_by(key: Rows, amount: IntArray, size: int) -> IntArray:
    """Sums by key. np.bincount would sum in floating point."""
    total = np.zeros(size, np.int64)
    np.add.at(total, key, amount)
    return total
