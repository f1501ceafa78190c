"""The most that queues give for a claim of one resource, whatever units are chosen.

In:    how the queues stand, a claim, what the units of each queue hold.   Out: by queue, an upper bound.
A queue gives units while it is above what protects it, so it gives at most its excess, rounded up to the last unit: by
as much as its largest unit, or exactly by the unit where all of them are equal.
"""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from kaiwo.decide.takeable import Amounts
from kaiwo.queues.reclaim_rules import Claim, Standing, entitled
from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows
from kaiwo.snapshot.queues import GPU


class Excess:
    """What is above what protects the queues from one claim."""

    def __init__(self, now: Standing, claim: Claim, has_gpus: bool) -> None:
        self._now, self._claim = now, claim
        self._matters: BoolArray = np.greater(claim.need, 0)
        self._matters[GPU] |= has_gpus  # of memory and partitions the device decides; the least may be nothing

    def given(self, resource: int, amounts: Mapping[int, Amounts]) -> dict[int, int]:
        """By queue: what it gives of a resource, of the amounts that are there."""
        now, claim = self._now, self._claim
        ours, theirs = now.queues.tree.parting(claim.queue)
        leaves = np.array(sorted(amounts), np.intp)
        excess = self._excess_where_paths_part(resource, ours[leaves], theirs[leaves]).tolist()
        by_side: dict[int, list[int]] = defaultdict(list)
        for at, side in enumerate(theirs[leaves].tolist()):
            if excess[at] > 0:
                by_side[side].append(at)
        taken: dict[int, int] = {}
        for side, places in by_side.items():
            each = [amounts[int(leaves[at])] for at in places]
            together = Amounts(0, min(one.smallest for one in each), max(one.largest for one in each))
            left = _rounded_up(excess[places[0]], together)
            for at, one in zip(places, each, strict=True):
                row = int(leaves[at])
                amount = taken[row] = min(self._from_queue(resource, side, row, one), left)
                left -= amount
        return {row: amount for row, amount in taken.items() if amount}

    def _from_queue(self, resource: int, theirs: int, row: int, amounts: Amounts) -> int:
        """The least that any queue on the way up lets go, and no more than there is."""
        now, most = self._now, amounts.total
        for above in now.queues.path[row]:
            if above == theirs:
                break
            excess = self._excess(resource, now.used[[above]], now.quota[[above]])
            most = min(most, _rounded_up(int(excess[0]), amounts))
        return most

    def _excess_where_paths_part(self, resource: int, ours: Rows, theirs: Rows) -> IntArray:
        """A side keeps its quota; its share, too, from a claimant whose own side is over its quota."""
        now = self._now
        is_owed: BoolArray = np.all(now.used[ours] + self._claim.need <= now.quota[ours], axis=1)
        share = np.maximum(now.quota[theirs], entitled(now, theirs))
        return self._excess(resource, now.used[theirs], np.where(is_owed[:, None], now.quota[theirs], share))

    def _excess(self, resource: int, used: IntArray, protected: IntArray) -> IntArray:
        """What is above what is protected. Too much of anything else that the claim needs opens all of it."""
        matters = self._matters.copy()
        matters[resource] = False
        is_over: BoolArray = (used > protected) & matters
        own = used[:, resource]
        excess: IntArray = np.where(is_over.any(axis=1), own, own - protected[:, resource])
        return excess


def _rounded_up(excess: int, amounts: Amounts) -> int:
    """What units give while the queue is above its bound."""
    _, smallest, largest = amounts
    if excess <= 0 or largest == 0:
        return 0
    if smallest == largest:
        return -(-excess // largest) * largest
    return excess + largest - 1
