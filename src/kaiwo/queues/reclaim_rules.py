"""Whether a queue may take capacity back from others, and from whom.

In:    how the queues stand: used, quota, limit and fair share by queue and resource.
Out:   nothing when it may; otherwise the one rule that says no, with its numbers.
Never: looks at nodes or pods; whether the capacity would fit the claimant is another question.

Two queues are compared where their paths part: there one side must be owed and the other must have too much of
something that the claimant needs. (Were any resource enough, two queues could trade one back and forth for ever.)
"""

import enum
from typing import NamedTuple

import numpy as np

from kaiwo.model.queue import ReclaimStrategy
from kaiwo.queues.fair import bounds
from kaiwo.snapshot.arrays import BoolArray, IntArray, Rows
from kaiwo.snapshot.queues import ENDLESS, QueueTable


class Standing(NamedTuple):
    """How the queues stand now; arrays by queue and resource, inner queues with all below them."""

    queues: QueueTable
    used: IntArray
    fixed: IntArray  # the part of `used` that may not be preempted
    fair: IntArray  # fair shares
    quota: IntArray
    limit: IntArray


class Claim(NamedTuple):
    """What a waiting workload needs to start."""

    queue: int  # the row of its leaf
    need: IntArray
    preemptible: bool = True


class Taking(NamedTuple):
    """Work that would be evicted and finds no new place in the same plan: a whole gang, or one surplus pod."""

    queue: int
    amount: IntArray


class Rule(enum.StrEnum):
    """Why a queue may not take."""

    NEVER_RECLAIMS = "queue-never-reclaims"
    OVER_FAIR_SHARE = "claimant-over-fair-share"
    OVER_QUOTA = "claimant-over-quota"  # a conservative queue, or work that may not be preempted
    SAME_QUEUE = "same-queue"
    WITHIN_QUOTA = "victim-within-quota"
    WITHIN_SHARE = "victim-within-share"
    WOULD_SWAP = "claimant-would-be-the-richer"


class Refusal(NamedTuple):
    """One rule that says no: `amount` of the resource is compared with `bound`."""

    rule: Rule
    queue: int
    resource: int = 0
    amount: int = 0
    bound: int = 0


def stand(queues: QueueTable, fair: IntArray, used: IntArray | None = None, fixed: IntArray | None = None) -> Standing:
    """The queues with these fair shares; used amounts from the table unless this cycle has newer ones.

    With a column a GPU model behind the three resources, `used` and `fixed` must have them too.
    """
    return Standing(
        queues,
        queues.used if used is None else used,
        queues.fixed if fixed is None else fixed,
        fair,
        bounds(queues.quota, queues.model_quota, fair.shape[1]),
        bounds(queues.limit, queues.model_limit, fair.shape[1]),
    )


def may_claim(now: Standing, claim: Claim) -> Refusal | None:
    """May this workload take from others at all? Asked before any victim is looked for."""
    row = claim.queue
    strategy = now.queues.tree.reclaim_strategy[row]
    if strategy is ReclaimStrategy.NONE:
        return Refusal(Rule.NEVER_RECLAIMS, row)
    with_it = now.used[row] + claim.need
    if (refusal := _above(Rule.OVER_FAIR_SHARE, row, with_it, now.fair[row])) is not None:
        return refusal
    if strategy is ReclaimStrategy.CONSERVATIVE:
        refusal = _above(Rule.OVER_QUOTA, row, with_it, now.quota[row])
    return refusal or fixed_over_quota(now, claim)


def victim_queues(now: Standing, claim: Claim, among: Rows | None = None) -> BoolArray:
    """The leaves (of these queues) that are worth a look: by queue, whether its work could be taken for this claim.

    A queue that stands exactly at its quota is kept: its work cannot be taken, but it can be moved.
    """
    rows = np.arange(len(now.queues.names)) if among is None else among
    ours, theirs = now.queues.tree.parting(claim.queue, rows)
    used, quota = now.used[theirs], now.quota[theirs]
    matters = (claim.need > 0)[None, :] & (quota < ENDLESS)
    over = (matters & (used > quota)).any(axis=1)
    under = (matters & (used < quota)).any(axis=1)
    owed = (now.used[ours] + claim.need <= now.quota[ours]).all(axis=1)
    has_too_much = ((claim.need > 0) & (used > entitled(now, theirs))).any(axis=1)
    found = np.zeros(len(now.queues.names), np.bool_)
    found[rows] = np.where(owed, over | ~under, has_too_much) & (ours != theirs)
    return found & np.array(now.queues.is_leaf, np.bool_)


def fixed_over_quota(now: Standing, claim: Claim) -> Refusal | None:
    """Work that may not be preempted stays inside the quota of its queue and of every queue above."""
    if claim.preemptible:
        return None
    for row in now.queues.path[claim.queue]:
        refusal = _above(Rule.OVER_QUOTA, row, now.fixed[row] + claim.need, now.quota[row])
        if refusal is not None:
            return refusal
    return None


def entitled(now: Standing, rows: Rows | int) -> IntArray:
    """What a queue may hold against others: its quota or its fair share, whichever is more, within its limit."""
    most: IntArray = np.minimum(np.maximum(now.quota[rows], now.fair[rows]), now.limit[rows])
    return most


def _above(rule: Rule, row: int, amount: IntArray, bound: IntArray) -> Refusal | None:
    over = amount - np.minimum(bound, ENDLESS)
    column = int(over.argmax())
    return _numbers(rule, row, column, amount, bound) if over[column] > 0 else None


def _numbers(rule: Rule, row: int, column: int, amount: IntArray, bound: IntArray) -> Refusal:
    return Refusal(rule, row, column, int(amount[column]), int(bound[column]))
