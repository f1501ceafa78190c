"""The arithmetic of one queue's share, number by number: what `kaiwo share` prints.

In:    the shares of a cycle.   Out: one value a resource, integers in the resource's unit.
"""

from typing import NamedTuple

from kaiwo.queues.fair import FairShares, Wants
from kaiwo.snapshot.queues import ENDLESS, RESOURCES, QueueTable


class ShareTerms(NamedTuple):
    """share = deserved + whole + remainder; whole = offered * weight / weights, rounded down, unless weights is 0."""

    resource: str  # gpu, cpu, memory, or a GPU model
    total: int  # what the queue and its siblings divide
    wants: int  # used and waiting, with all below it
    quota: int | None  # None: unlimited
    limit: int | None
    deserved: int
    whole: int
    remainder: int
    share: int
    offered: int
    weight: int
    weights: int


def terms_of(queues: QueueTable, wants: Wants, shares: FairShares, row: int) -> tuple[ShareTerms, ...]:
    """Every resource of one queue."""
    names = (*RESOURCES, *queues.models)
    quotas = [*queues.quota[row], *queues.model_quota[row]]
    limits = [*queues.limit[row], *queues.model_limit[row]]
    return tuple(
        ShareTerms(
            names[column],
            int(shares.total[row, column]),
            int(wants.request[row, column]),
            _finite(quotas[column]),
            _finite(limits[column]),
            int(shares.deserved[row, column]),
            int(shares.whole[row, column]),
            int(shares.remainder[row, column]),
            int(shares.share[row, column]),
            int(shares.offered[row, column]),
            int(shares.weight[row, column]),
            int(shares.weights[row, column]),
        )
        for column in range(shares.share.shape[1])
    )


def _finite(amount: int) -> int | None:
    return None if amount >= ENDLESS else int(amount)
