"""Every term of one queue's fair share, as `kaiwo share` prints it."""

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
    past_ppm: int | None = None  # its recent part of the cluster, which changed the weight; None: it does not count


def share_breakdown(queues: QueueTable, wants: QueueDemand, shares: FairShares, row: int) -> tuple[ShareBreakdown, ...]:
    names = (*RESOURCES, *queues.models)
    quotas = [*queues.quota[row].tolist(), *queues.model_quota[row].tolist()]
    limits = [*queues.limit[row].tolist(), *queues.model_limit[row].tolist()]
    each = {name: values[row].tolist() for name, values in zip(FairShares._fields, shares, strict=True)}
    asked = wants.request[row].tolist()
    past = None if wants.past is None else (wants.past[row] * 1_000_000 // WHOLE_PART).tolist()
    return tuple(
        ShareBreakdown(
            resource=names[column],
            wants=asked[column],
            quota=_finite(quotas[column]),
            limit=_finite(limits[column]),
            past_ppm=None if past is None else past[column],
            **{name: values[column] for name, values in each.items()},
        )
        for column in range(len(asked))
    )


def _finite(amount: int) -> int | None:
    return None if amount >= ENDLESS else amount
