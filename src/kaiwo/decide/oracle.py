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
from kaiwo.snapshot.arrays import IntArray
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
    by_side: dict[int, list[str]] = defaultdict(list)
    for name in queues:
        by_side[int(theirs[now.queues.row[name]])].append(name)
    taken: dict[str, int] = {}
    for side, names in by_side.items():
        amounts = {name: desk.roster.amounts(name) for name in names}
        together = (0, min(each[1] for each in amounts.values()), max(each[2] for each in amounts.values()))
        protected = _protected(now, claim, int(ours[now.queues.row[names[0]]]), side)
        left = _rounded_up(_excess(now, claim, side, protected), together)
        for name in names:
            taken[name] = min(_from_queue(now, claim, side, now.queues.row[name], amounts[name]), left)
            left -= taken[name]
    return Most(free, {name: amount for name, amount in taken.items() if amount})


def _from_queue(now: Standing, claim: Claim, theirs: int, row: int, amounts: Amounts) -> int:
    """The least that any queue on the way up lets go, and no more than there is."""
    most = amounts[0]
    for above in now.queues.path[row]:
        if above == theirs:
            break
        most = min(most, _rounded_up(_excess(now, claim, above, now.quota[above]), amounts))
    return most


def _protected(now: Standing, claim: Claim, ours: int, theirs: int) -> IntArray:
    """What the other side keeps where the paths part: its quota; its share, too, from one that is over its own."""
    if (now.used[ours] + claim.need <= now.quota[ours]).all():
        quota: IntArray = now.quota[theirs]
        return quota
    share: IntArray = np.maximum(now.quota[theirs], entitled(now, theirs))
    return share


def _excess(now: Standing, claim: Claim, row: int, protected: IntArray) -> int:
    """The milli-GPU above what is protected. Too much of anything else that the claim needs opens all of it."""
    over = np.where(claim.need > 0, now.used[row] - protected, 0)
    if (np.delete(over, GPU) > 0).any():
        return int(now.used[row, GPU])
    return int(over[GPU])


def _rounded_up(excess: int, amounts: Amounts) -> int:
    """What units give while the queue is above its bound."""
    _, smallest, largest = amounts
    if excess <= 0 or largest == 0:
        return 0
    if smallest == largest:
        return -(-excess // largest) * largest
    return excess + largest - 1
