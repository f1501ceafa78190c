"""Fair shares of every queue at every level: a parent's share is what its children divide.

In:    the queues, what the cluster has, and what each queue demands.   Out: every term of each queue's share.
Each resource is divided by itself.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.model.queue import SharePolicy
from kaiwo.queues.past_usage import WHOLE_PART, adjust_weights
from kaiwo.queues.resource_division import ShareClaims, SurplusPart, deserved, divide_surplus
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.queue_table import (
    BY_PRIORITY,
    BY_WAIT,
    GPU,
    INFINITE,
    NO_PARENT,
    RESOURCES,
    SERVES_FULLY,
    SHARE_POLICIES,
    QueueTable,
)


class ShareRules(NamedTuple):
    units: tuple[int, ...] = (WHOLE_MILLI, 1, 1)  # over-quota parts are whole GPUs, milli-CPU, MiB
    usage_strength_milli: int = 0  # how much past usage changes the weights; 0: not at all
    root_policy: SharePolicy = SharePolicy.DRF  # among the queues that have no parent


class QueueDemand(NamedTuple):
    """What is divided, and each queue's demand: used and waiting, including everything below it."""

    totals: IntArray  # by resource
    request: IntArray  # by queue and resource
    oldest_s: IntArray | None = None  # by queue: when its oldest waiting work was submitted (for FIFO)
    past: IntArray | None = None  # by queue and resource: its recent part of the cluster, see `past_usage`


class FairShares(NamedTuple):
    """By queue and resource. `share` is the sum of `deserved`, `whole` and `remainder`."""

    share: IntArray
    total: IntArray  # what the queue and its siblings divide
    deserved: IntArray  # the least of quota, demand and limit
    whole: IntArray  # its weight's part of the rest, rounded down; or all it wants
    remainder: IntArray  # its part of what rounding left over
    offered: IntArray  # the amount that was divided by weight
    weight: IntArray  # this queue's weight in that, adjusted by past usage
    weights: IntArray  # and the sum of all of them; 0 where nothing had to be divided by weight


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


DEFAULT_RULES = ShareRules()


def fair_shares(queues: QueueTable, wants: QueueDemand, rules: ShareRules = DEFAULT_RULES) -> FairShares:
    """Level by level from the roots: all siblings of one depth and all resources at once."""
    size, columns = wants.request.shape
    out = FairShares(*(np.zeros((size, columns), np.int64) for _ in FairShares._fields))
    policy = _policies(queues, rules)
    claims = _claims(queues, wants, rules, _ranks(queues, wants, policy))
    serves_fully = SERVES_FULLY[policy]
    # A pool is what the children of one queue divide of one resource; the first row is the cluster's.
    totals = np.zeros((size + 1, columns), np.int64)
    totals[0] = wants.totals
    for rows in queues.tree.levels:
        level = ShareClaims(*(column[rows].ravel() for column in claims))
        has = deserved(totals.ravel(), level)
        rest = totals.ravel().copy()
        np.subtract.at(rest, level.pool, has)
        past = None if wants.past is None else wants.past[rows].ravel()
        level = _adjusted(level, has, past, rules.usage_strength_milli)
        pool_serves_fully = np.zeros(totals.size, np.bool_)
        pool_serves_fully[level.pool] = np.repeat(serves_fully[rows], columns)
        part = divide_surplus(np.maximum(rest, 0), level, has, pool_serves_fully)
        _write(out, rows, has, level, part)
        out.total[rows] = totals[queues.tree.parent[rows] + 1]
        totals[rows + 1] = out.share[rows]
    return out


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


def bounds(amounts: IntArray, by_model: IntArray, columns: int) -> IntArray:
    """Besides GPU, CPU and memory there may be one column per GPU model."""
    return amounts if columns == len(RESOURCES) else np.hstack((amounts, by_model))


def _claims(queues: QueueTable, wants: QueueDemand, rules: ShareRules, ranks: IntArray) -> ShareClaims:
    shape = wants.request.shape
    columns = shape[1]
    pool = (queues.tree.parent + 1)[:, None] * columns + np.arange(columns)
    units = rules.units + (rules.units[GPU],) * (columns - len(rules.units))
    return ShareClaims(
        pool,
        np.broadcast_to(ranks[:, None], shape),
        bounds(queues.quota, queues.model_quota, columns),
        bounds(queues.limit, queues.model_limit, columns),
        wants.request,
        np.maximum(_weights(queues, columns), 0),
        np.broadcast_to(np.array(units, np.int64), shape),
        np.broadcast_to(queues.tree.age[:, None], shape),
    )


def _write(out: FairShares, rows: Rows, has: IntArray, claims: ShareClaims, part: SurplusPart) -> None:
    shape = out.share[rows].shape
    out.deserved[rows] = has.reshape(shape)
    out.whole[rows] = part.whole.reshape(shape)
    out.remainder[rows] = part.remainder.reshape(shape)
    out.offered[rows] = part.offered.reshape(shape)
    out.weight[rows] = claims.weight.reshape(shape)
    out.weights[rows] = part.weights.reshape(shape)
    out.share[rows] = out.deserved[rows] + out.whole[rows] + out.remainder[rows]


def _policies(queues: QueueTable, rules: ShareRules) -> IntArray:
    """By queue, the code of the policy that divides between it and its siblings."""
    tree = queues.tree
    return np.where(tree.parent == NO_PARENT, SHARE_POLICIES.index(rules.root_policy), tree.policy_code[tree.parent])


def _ranks(queues: QueueTable, wants: QueueDemand, policy: IntArray) -> IntArray:
    """The order in which siblings are served: the lowest first."""
    ranks = np.where(BY_PRIORITY[policy], -queues.priority, 0)
    by_wait = BY_WAIT[policy]
    if not by_wait.any():
        return ranks
    age = queues.tree.age
    waited_longest = np.empty_like(ranks)
    waited_longest[np.lexsort((age, age if wants.oldest_s is None else wants.oldest_s))] = np.arange(len(ranks))
    return np.where(by_wait, waited_longest, ranks)


def _adjusted(claims: ShareClaims, has: IntArray, past: IntArray | None, strength_milli: int) -> ShareClaims:
    """Weights adjusted by past usage. A queue whose weight would be 0 is served after its equals."""
    if past is None or strength_milli <= 0:
        return claims._replace(weight=adjust_weights(claims.pool, claims.weight, claims.weight, 0))
    competes = (np.minimum(claims.request, claims.limit) > has) & (claims.weight > 0)
    ranks, rank = np.unique(claims.rank, return_inverse=True)
    weights = np.where(competes, claims.weight, 0)
    adjusted = adjust_weights(claims.pool * len(ranks) + rank, weights, past, strength_milli)
    comes_last = competes & (adjusted == 0)
    weight = np.where(comes_last | ~competes, claims.weight, adjusted)
    return claims._replace(weight=weight, rank=2 * claims.rank + comes_last)


def _weights(queues: QueueTable, columns: int) -> IntArray:
    models = columns - len(RESOURCES)
    return queues.weight if not models else np.hstack((queues.weight, np.repeat(queues.weight[:, [GPU]], models, 1)))


def _finite(amount: int) -> int | None:
    return None if amount >= INFINITE else amount
