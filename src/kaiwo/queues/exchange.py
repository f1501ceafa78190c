"""One claim and the work that is taken for it, piece by piece.

In:    how the queues stand, and a claim that `may_claim` let through.
Out:   per piece of work, whether it may be taken next; at the end, whether the exchange as a whole may stand.
Never: looks again at what was settled before, so a search may add and undo thousands of pieces.
"""

from collections.abc import Iterable

import numpy as np

from kaiwo.model.queue import ReclaimStrategy
from kaiwo.queues.reclaim_rules import Claim, Refusal, Rule, Standing, Taking, entitled, fixed_over_quota

Amount = list[int]  # one number a resource: at this size plain lists are five times as quick as arrays


class Exchange:
    """The takings count in the order in which they are added."""

    def __init__(self, now: Standing, claim: Claim, swap_milli: int = 1000) -> None:
        """`swap_milli` above 1000 asks for a wider gap before one over its fair share takes from a richer one."""
        self._now, self._claim, self._swap_milli = now, claim, swap_milli
        self._need: Amount = claim.need.tolist()
        self._matters = [column for column, need in enumerate(self._need) if need > 0]
        self._is_conservative = now.queues.tree.reclaim_strategy[claim.queue] is ReclaimStrategy.CONSERVATIVE
        self._ours, self._theirs = now.queues.tree.parting(claim.queue)
        self._left: dict[int, Amount] = {}  # of the queues that something was taken from
        self._taken: list[tuple[int, Amount]] = []
        self._quota: dict[int, Amount] = {}
        self._entitled: dict[int, Amount] = {}
        self._over_quota: dict[int, Refusal | None] = {}  # by the claimant's side of a parting

    def take(self, taking: Taking) -> Refusal | None:
        """Take this too, unless a rule protects it."""
        return self.take_from(taking.queue, taking.amount.tolist())

    def take_from(self, queue: int, amount: Amount) -> Refusal | None:
        """The same in plain numbers."""
        refusal = self._protects(queue)
        if refusal is None:
            self._add(queue, amount, -1)
            self._taken.append((queue, amount))
        return refusal

    def undo(self) -> None:
        """Put the last piece back."""
        queue, amount = self._taken.pop()
        self._add(queue, amount, +1)

    def verdict(self) -> Refusal | None:
        """May all of it stand?"""
        return self._takes_what_is_owed() or self._would_swap() or fixed_over_quota(self._now, self._claim)

    def _takes_what_is_owed(self) -> Refusal | None:
        """Each piece must have been too much even as the last one: a large piece taken after it may leave its queue
        with less than it is owed, so that its owner takes it back, and so on for ever."""
        for queue, amount in dict.fromkeys((queue, tuple(amount)) for queue, amount in self._taken):
            self._add(queue, list(amount), +1)
            refusal = self._protects(queue)
            self._add(queue, list(amount), -1)
            if refusal is not None:
                return refusal
        return None

    def _protects(self, queue: int) -> Refusal | None:
        """The rules that stand before the victim: quotas on its path, then the shares where the paths part."""
        ours, theirs = int(self._ours[queue]), int(self._theirs[queue])
        if ours == theirs:
            return Refusal(Rule.SAME_QUEUE, queue)
        for row in self._now.queues.path[queue]:
            if row not in self._quota:
                self._quota[row] = self._now.quota[row].tolist()
            if (refusal := self._not_above(Rule.WITHIN_QUOTA, row, self._quota[row])) is not None:
                return refusal
            if row == theirs:
                break
        over_quota = self._claimant_over_quota(ours)
        if over_quota is None:  # the claimant's side is owed, and the victim's is over its quota: see above
            return None
        if self._is_conservative:
            return over_quota
        if theirs not in self._entitled:
            self._entitled[theirs] = entitled(self._now, theirs).tolist()
        return self._not_above(Rule.WITHIN_SHARE, theirs, self._entitled[theirs])

    def _claimant_over_quota(self, ours: int) -> Refusal | None:
        if ours not in self._over_quota:
            used, quota = self._now.used[ours].tolist(), self._now.quota[ours].tolist()
            over = [used[column] + need - quota[column] for column, need in enumerate(self._need)]
            worst = max(range(len(over)), key=over.__getitem__)
            self._over_quota[ours] = (
                Refusal(Rule.OVER_QUOTA, ours, worst, used[worst] + self._need[worst], quota[worst])
                if over[worst] > 0
                else None
            )
        return self._over_quota[ours]

    def _not_above(self, rule: Rule, row: int, bound: Amount) -> Refusal | None:
        """Nothing that the claimant needs is above its bound there."""
        has = self._remaining(row)
        if not self._matters:
            return Refusal(rule, row)
        most = max(self._matters, key=lambda column: has[column] - bound[column])
        return Refusal(rule, row, most, has[most], bound[most]) if has[most] <= bound[most] else None

    def _would_swap(self) -> Refusal | None:
        """A claimant's side that goes over its fair share must stay the poorer one, or the two would take turns."""
        now, parent = self._now, self._now.queues.tree.parent
        for row in now.queues.path[self._claim.queue]:
            with_it = np.array(self._remaining(row)) + self._claim.need
            over = with_it > now.fair[row]
            for sibling in self._left if over.any() else ():
                if parent[sibling] != parent[row] or sibling == row:
                    continue
                left = self._remaining(sibling)
                involved = (self._claim.need > 0) | (left < now.used[sibling])
                for column in np.flatnonzero(involved & over & (now.fair[sibling] > 0)):
                    own = int(with_it[column]) * int(now.fair[sibling, column]) * self._swap_milli
                    other = left[column] * int(now.fair[row, column]) * 1000
                    if own >= other:
                        most = int(now.fair[row, column])
                        return Refusal(Rule.WOULD_SWAP, row, int(column), int(with_it[column]), most)
        return None

    def _remaining(self, row: int) -> Amount:
        if row not in self._left:
            remaining: Amount = self._now.used[row].tolist()
            return remaining
        return self._left[row]

    def _add(self, queue: int, amount: Amount, sign: int) -> None:
        for above in self._now.queues.path[queue]:
            if above not in self._left:
                self._left[above] = self._remaining(above)
            left = self._left[above]
            for column, each in enumerate(amount):
                left[column] += sign * each


def may_take(now: Standing, claim: Claim, takings: Iterable[Taking], swap_milli: int = 1000) -> Refusal | None:
    """May exactly this work be evicted for the claim, in this order?"""
    exchange = Exchange(now, claim, swap_milli)
    for taking in takings:
        if (refusal := exchange.take(taking)) is not None:
            return refusal
    return exchange.verdict()
