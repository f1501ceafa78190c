"""Prove that no set of victims can help, before any search: sums over queues, with the numbers that prove it.

In:    how the queues stand, a claim, what runs in the queues it could take from.   Out: the most that could be had.
A queue gives units while it is above what protects it, so it gives at most its excess, rounded up to the last unit: by
as much as its largest unit, or exactly by the unit where all of them are equal.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from kaiwo.decide.desk import Desk
from kaiwo.queues.reclaim_rules import Claim, Standing, entitled
from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows
from kaiwo.snapshot.nodes import GPU_LEFT
from kaiwo.snapshot.queues import GPU

Amounts = tuple[int, int, int]  # of units, in milli-GPU: all together, the smallest, the largest


class Most(NamedTuple):
    """An upper bound on what a claim could ever have, in milli-GPU."""

    free_milli: int  # free on nodes, or being released
    taken_milli: dict[str, int]  # by queue, the most that may be taken from it

    @property
    def milli(self) -> int:
        """All together."""
        return self.free_milli + sum(self.taken_milli.values())


def most_for(desk: Desk, now: Standing, claim: Claim, queues: list[str]) -> Most:
    """Nothing that the rules allow gives more than this."""
    free = int(np.maximum(desk.working.free[:, GPU_LEFT], 0).sum())
    ours, theirs = now.queues.tree.parting(claim.queue)
    leaves = [now.queues.row[name] for name in queues]
    excess = _excess_where_paths_part(now, claim, ours[leaves], theirs[leaves]).tolist()
    by_side: dict[int, list[int]] = defaultdict(list)
    for at, side in enumerate(theirs[leaves].tolist()):
        if excess[at] > 0:
            by_side[side].append(at)
    taken: dict[str, int] = {}
    for side, places in by_side.items():
        amounts = [desk.roster.amounts(queues[at]) for at in places]
        together = (0, min(each[1] for each in amounts), max(each[2] for each in amounts))
        left = _rounded_up(excess[places[0]], together)
        for at, each in zip(places, amounts, strict=True):
            amount = taken[queues[at]] = min(_from_queue(now, claim, side, leaves[at], each), left)
            left -= amount
    return Most(free, {name: amount for name, amount in taken.items() if amount})


def _from_queue(now: Standing, claim: Claim, theirs: int, row: int, amounts: Amounts) -> int:
    """The least that any queue on the way up lets go, and no more than there is."""
    most = amounts[0]
    for above in now.queues.path[row]:
        if above == theirs:
            break
        excess = _excess(claim, now.used[[above]], now.quota[[above]])
        most = min(most, _rounded_up(int(excess[0]), amounts))
    return most


def _excess_where_paths_part(now: Standing, claim: Claim, ours: Rows, theirs: Rows) -> IntArray:
    """A side keeps its quota; its share, too, from a claimant whose own side is over its quota."""
    is_owed: BoolArray = np.all(now.used[ours] + claim.need <= now.quota[ours], axis=1)
    share = np.maximum(now.quota[theirs], entitled(now, theirs))
    return _excess(claim, now.used[theirs], np.where(is_owed[:, None], now.quota[theirs], share))


def _excess(claim: Claim, used: IntArray, protected: IntArray) -> IntArray:
    """The milli-GPU above what is protected. Too much of anything else that the claim needs opens all of it."""
    matters: BoolArray = np.greater(claim.need, 0)
    matters[GPU] = False
    is_over: BoolArray = (used > protected) & matters
    excess: IntArray = np.where(is_over.any(axis=1), used[:, GPU], used[:, GPU] - protected[:, GPU])
    return excess


def _rounded_up(excess: int, amounts: Amounts) -> int:
    """What units give while the queue is above its bound."""
    _, smallest, largest = amounts
    if excess <= 0 or largest == 0:
        return 0
    if smallest == largest:
        return -(-excess // largest) * largest
    return excess + largest - 1
