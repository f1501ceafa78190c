"""The rules of reclaim: whether a queue may take capacity from others, from which queues, and which work exactly.

In:    the queues' shares, and what a waiting workload needs.   Out: None, or the rule that refuses and its numbers.
A search tries thousands of victims, so each check costs only what the last victim changed.
"""

import enum
from typing import NamedTuple

import numpy as np

from kaiwo.model.queue import ReclaimStrategy
from kaiwo.queues.fair_share import bounds
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.queue_table import INFINITE, QueueTable

Amount = list[int]  # one number per resource: at this size plain lists are five times as fast as arrays


class QueueShares(NamedTuple):
    """Usage and shares of all queues; arrays by queue and resource, inner queues with everything below them."""

    queues: QueueTable
    used: IntArray
    non_preemptible: IntArray  # the part of `used` that may not be preempted
    fair: IntArray  # fair shares
    quota: IntArray
    limit: IntArray


class ReclaimRequest(NamedTuple):
    queue: int  # the row of its leaf
    need: IntArray
    preemptible: bool = True


class RefusalRule(enum.StrEnum):
    NEVER_RECLAIMS = "queue-never-reclaims"
    OVER_FAIR_SHARE = "claimant-over-fair-share"
    OVER_QUOTA = "claimant-over-quota"  # a conservative queue, or work that may not be preempted
    SAME_QUEUE = "same-queue"
    WITHIN_QUOTA = "victim-within-quota"
    WITHIN_SHARE = "victim-within-share"
    WOULD_SWAP = "claimant-would-be-the-richer"


class ReclaimRefusal(NamedTuple):
    """A rule that refuses: `amount` of the resource is compared with `bound`."""

    rule: RefusalRule
    queue: int
    resource: int = 0
    amount: int = 0
    bound: int = 0


def queue_shares(
    queues: QueueTable, fair: IntArray, used: IntArray | None = None, non_preemptible: IntArray | None = None
) -> QueueShares:
    """The queues with these fair shares; usage from the table unless this cycle has newer numbers.

    With a column per GPU model after the three resources, `used` and `fixed` must have them, too.
    """
    return QueueShares(
        queues,
        queues.used if used is None else used,
        queues.non_preemptible if non_preemptible is None else non_preemptible,
        fair,
        bounds(queues.quota, queues.model_quota, fair.shape[1]),
        bounds(queues.limit, queues.model_limit, fair.shape[1]),
    )


def refusal_to_reclaim(shares: QueueShares, request: ReclaimRequest) -> ReclaimRefusal | None:
    """Whether this workload may reclaim at all. Asked before any victim is looked for."""
    row = request.queue
    strategy = shares.queues.tree.reclaim_strategy[row]
    if strategy is ReclaimStrategy.NONE:
        return ReclaimRefusal(RefusalRule.NEVER_RECLAIMS, row)
    with_it = shares.used[row] + request.need
    if (refusal := _above(RefusalRule.OVER_FAIR_SHARE, row, with_it, shares.fair[row])) is not None:
        return refusal
    if strategy is ReclaimStrategy.CONSERVATIVE:
        refusal = _above(RefusalRule.OVER_QUOTA, row, with_it, shares.quota[row])
    return refusal or non_preemptible_over_quota(shares, request)


def victim_queues(shares: QueueShares, request: ReclaimRequest, among: Rows | None = None) -> BoolArray:
    """By queue: whether it is a leaf (of these queues) whose work could be evicted for this request.

    A queue exactly at its quota counts: its work cannot be evicted, but it can be moved.
    """
    rows = np.arange(len(shares.queues.names)) if among is None else among
    ours, theirs = shares.queues.tree.diverging_queues(request.queue, rows)
    used, quota = shares.used[theirs], shares.quota[theirs]
    matters = (request.need > 0)[None, :] & (quota < INFINITE)
    over = (matters & (used > quota)).any(axis=1)
    under = (matters & (used < quota)).any(axis=1)
    owed = (shares.used[ours] + request.need <= shares.quota[ours]).all(axis=1)
    has_too_much = ((request.need > 0) & (used > entitled(shares, theirs))).any(axis=1)
    found = np.zeros(len(shares.queues.names), np.bool_)
    found[rows] = np.where(owed, over | ~under, has_too_much) & (ours != theirs)
    return found & np.array(shares.queues.is_leaf, np.bool_)


def non_preemptible_over_quota(shares: QueueShares, request: ReclaimRequest) -> ReclaimRefusal | None:
    """Non-preemptible work stays inside the quota of its queue and of every queue above."""
    if request.preemptible:
        return None
    for row in shares.queues.path[request.queue]:
        refusal = _above(RefusalRule.OVER_QUOTA, row, shares.non_preemptible[row] + request.need, shares.quota[row])
        if refusal is not None:
            return refusal
    return None


def entitled(shares: QueueShares, rows: Rows | int) -> IntArray:
    """What a queue may hold against others: its quota or its fair share, whichever is more, within its limit."""
    most: IntArray = np.minimum(np.maximum(shares.quota[rows], shares.fair[rows]), shares.limit[rows])
    return most


def _above(rule: RefusalRule, row: int, amount: IntArray, bound: IntArray) -> ReclaimRefusal | None:
    over = amount - np.minimum(bound, INFINITE)
    column = int(over.argmax())
    return ReclaimRefusal(rule, row, column, int(amount[column]), int(bound[column])) if over[column] > 0 else None


class ReclaimCheck:
    """One request and the victims chosen for it so far, in order."""

    def __init__(self, shares: QueueShares, request: ReclaimRequest, swap_milli: int = 1000) -> None:
        """`swap_milli` above 1000 demands a wider gap before a queue over its fair share takes from a richer one.

        It is KAI-Scheduler's reclaimer utilization multiplier; only the conformance tables set it so far.
        """
        self._shares, self._request, self._swap_milli = shares, request, swap_milli
        self._need: Amount = request.need.tolist()
        self._matters = [column for column, need in enumerate(self._need) if need > 0]
        self._is_conservative = shares.queues.tree.reclaim_strategy[request.queue] is ReclaimStrategy.CONSERVATIVE
        self._ours, self._theirs = shares.queues.tree.diverging_queues(request.queue)
        self._left: dict[int, Amount] = {}  # what the queues of victims still use
        self._taken: list[tuple[int, Amount]] = []
        self._quota: dict[int, Amount] = {}
        self._entitled: dict[int, Amount] = {}
        self._over_quota: dict[int, ReclaimRefusal | None] = {}  # by the preemptor's queue where the paths diverge

    def take_from(self, queue: int, amount: Amount) -> ReclaimRefusal | None:
        """Add a victim, unless a rule protects it: a whole gang, or one surplus pod, that the plan does not move."""
        refusal = self._protects(queue)
        if refusal is None:
            self._add(queue, amount, -1)
            self._taken.append((queue, amount))
        return refusal

    def check_all(self) -> ReclaimRefusal | None:
        own_refusal = self._takes_what_is_owed() or self._would_swap()
        return own_refusal or non_preemptible_over_quota(self._shares, self._request)

    def _takes_what_is_owed(self) -> ReclaimRefusal | None:
        """Each victim must be excess even if evicted last: a larger one evicted after it may leave its queue with less
        than it is owed, so that the queue would reclaim that again, and so on forever.
        """
        for queue, amount in dict.fromkeys((queue, tuple(amount)) for queue, amount in self._taken):
            self._add(queue, list(amount), +1)
            refusal = self._protects(queue)
            self._add(queue, list(amount), -1)
            if refusal is not None:
                return refusal
        return None

    def _protects(self, queue: int) -> ReclaimRefusal | None:
        """The rules that protect a victim: the quotas on its path, then the shares where the paths diverge."""
        ours, theirs = int(self._ours[queue]), int(self._theirs[queue])
        if ours == theirs:
            return ReclaimRefusal(RefusalRule.SAME_QUEUE, queue)
        for row in self._shares.queues.path[queue]:
            if row not in self._quota:
                self._quota[row] = self._shares.quota[row].tolist()
            if (refusal := self._not_above(RefusalRule.WITHIN_QUOTA, row, self._quota[row])) is not None:
                return refusal
            if row == theirs:
                break
        over_quota = self._preemptor_over_quota(ours)
        if over_quota is None:  # the preemptor is owed this, and the victim is over its quota
            return None
        if self._is_conservative:
            return over_quota
        if theirs not in self._entitled:
            self._entitled[theirs] = entitled(self._shares, theirs).tolist()
        return self._not_above(RefusalRule.WITHIN_SHARE, theirs, self._entitled[theirs])

    def _preemptor_over_quota(self, ours: int) -> ReclaimRefusal | None:
        if ours not in self._over_quota:
            used, quota = self._shares.used[ours].tolist(), self._shares.quota[ours].tolist()
            over = [used[column] + need - quota[column] for column, need in enumerate(self._need)]
            worst = max(range(len(over)), key=over.__getitem__)
            self._over_quota[ours] = (
                ReclaimRefusal(RefusalRule.OVER_QUOTA, ours, worst, used[worst] + self._need[worst], quota[worst])
                if over[worst] > 0
                else None
            )
        return self._over_quota[ours]

    def _not_above(self, rule: RefusalRule, row: int, bound: Amount) -> ReclaimRefusal | None:
        """Refuses unless something that the preemptor needs is above its bound there."""
        has = self._remaining(row)
        if not self._matters:
            return ReclaimRefusal(rule, row)
        most = max(self._matters, key=lambda column: has[column] - bound[column])
        return ReclaimRefusal(rule, row, most, has[most], bound[most]) if has[most] <= bound[most] else None

    def _would_swap(self) -> ReclaimRefusal | None:
        """If the preemptor's side goes over its fair share, it must stay the poorer one: else the two take turns."""
        shares, parent = self._shares, self._shares.queues.tree.parent
        for row in shares.queues.path[self._request.queue]:
            with_it = np.array(self._remaining(row)) + self._request.need
            over = with_it > shares.fair[row]
            for sibling in self._left if over.any() else ():
                if parent[sibling] != parent[row] or sibling == row:
                    continue
                left = self._remaining(sibling)
                involved = (self._request.need > 0) | (left < shares.used[sibling])
                for column in np.flatnonzero(involved & over & (shares.fair[sibling] > 0)):
                    own = int(with_it[column]) * int(shares.fair[sibling, column]) * self._swap_milli
                    other = left[column] * int(shares.fair[row, column]) * 1000
                    if own >= other:
                        most = int(shares.fair[row, column])
                        return ReclaimRefusal(RefusalRule.WOULD_SWAP, row, int(column), int(with_it[column]), most)
        return None

    def _remaining(self, row: int) -> Amount:
        if row not in self._left:
            remaining: Amount = self._shares.used[row].tolist()
            return remaining
        return self._left[row]

    def _add(self, queue: int, amount: Amount, sign: int) -> None:
        for above in self._shares.queues.path[queue]:
            if above not in self._left:
                self._left[above] = self._remaining(above)
            left = self._left[above]
            for column, each in enumerate(amount):
                left[column] += sign * each
