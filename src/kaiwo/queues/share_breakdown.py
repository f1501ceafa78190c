"""The arithmetic of one queue's share, number by number: what `kaiwo share` prints.

In:    the shares of a cycle.   Out: one value a resource, integers in the resource's unit.
"""

from typing import NamedTuple

from kaiwo.queues.fair_share import FairShares, QueueDemand
from kaiwo.queues.past_usage import WHOLE_PART
from kaiwo.snapshot.queue_table import ENDLESS, RESOURCES, QueueTable


class ShareBreakdown(NamedTuple):
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
    past_ppm: int | None = None  # its part of the cluster lately, which bent the weight; None: it does not count


def share_breakdown(queues: QueueTable, wants: QueueDemand, shares: FairShares, row: int) -> tuple[ShareBreakdown, ...]:
    """Every resource of one queue."""
    names = (*RESOURCES, *queues.models)
    quotas = [*queues.quota[row].tolist(), *queues.model_quota[row].tolist()]
    limits = [*queues.limit[row].tolist(), *queues.model_limit[row].tolist()]
    each = {name: values[row].tolist() for name, values in zip(FairShares._fields, shares, strict=True)}
    asked = wants.request[row].tolist()
    past = None if wants.past is None else (wants.past[row] * 1_000_000 // WHOLE_PART).tolist()
    return tuple(
        ShareBreakdown(
            names[column],
            each["total"][column],
            asked[column],
            _finite(quotas[column]),
            _finite(limits[column]),
            each["deserved"][column],
            each["whole"][column],
            each["remainder"][column],
            each["share"][column],
            each["offered"][column],
            each["weight"][column],
            each["weights"][column],
            None if past is None else past[column],
        )
        for column in range(len(asked))
    )


def _finite(amount: int) -> int | None:
    return None if amount >= ENDLESS else amount
