"""Victims as values, and the check of a whole list of them."""

from collections.abc import Iterable
from typing import NamedTuple

from kaiwo.queues.reclaim_rules import QueueShares, ReclaimCheck, ReclaimRefusal, ReclaimRequest
from kaiwo.snapshot.array_types import IntArray


class VictimUsage(NamedTuple):
    """Work that would be evicted and finds no new place in the same plan: a whole gang, or one surplus pod."""

    queue: int
    amount: IntArray


def take(check: ReclaimCheck, victim: VictimUsage) -> ReclaimRefusal | None:
    return check.take_from(victim.queue, victim.amount.tolist())


def may_take(
    now: QueueShares, claim: ReclaimRequest, victims: Iterable[VictimUsage], swap_milli: int = 1000
) -> ReclaimRefusal | None:
    """May exactly this work be evicted for the claim, in this order?"""
    check = ReclaimCheck(now, claim, swap_milli)
    for victim in victims:
        if (refusal := take(check, victim)) is not None:
            return refusal
    return check.check_all()
