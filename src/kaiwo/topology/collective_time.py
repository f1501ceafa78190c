"""Predict how long a collective takes on given nodes: the slowest link that it uses decides.

In:    NetworkRates, the GPUs that each candidate placement has on each node.   Out: MB/s and microseconds, as integers.
Never: looks at one node in Python: all candidates and nodes are computed together.

Rates are *bus bandwidths*, as the tests of NCCL and RCCL report them: an all-reduce of S bytes among n GPUs moves
2 (n - 1) / n x S bytes over the slowest link. Inside a node, k GPUs with a link between each pair have (k - 1) links
each; GPUs on a switch have its full rate whatever their number. Between nodes, the data is spread evenly over the rails
that all nodes have, so the slowest rail decides. A node whose job leaves its leaf gets the leaf's working uplinks
divided by the nodes that are active there.
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.topology.link_use import ActiveNodes, everywhere
from kaiwo.topology.network_rates import NOT_KNOWN, NetworkRates, RailRates

UNLIMITED = np.iinfo(np.int64).max // 4
NO_PATH_US = np.iinfo(np.int64).max // 4


Active: TypeAlias = ActiveNodes | IntArray | None  # an array: the same nodes on every link; None: no other workload


class Parallelism(NamedTuple):
    """How a job divides its GPUs. Ranks are counted along tensor groups first, then data, then pipeline."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 0  # 0: the rest

    def data_of(self, gpus: int) -> int:
        return self.data or max(1, gpus // max(1, self.tensor * self.pipeline))


class StepTraffic(NamedTuple):
    """Bytes that one training step exchanges, for each GPU."""

    data_bytes: int  # reduced among the data-parallel copies: the gradients of one GPU's part of the model
    tensor_bytes: int = 0  # reduced inside each tensor-parallel group
    pipeline_bytes: int = 0  # sent from one pipeline stage to the next


def bus_bandwidth(rates: NetworkRates, gpus: IntArray, active: Active = None) -> IntArray:
    """MB/s by candidate for one collective among all its GPUs; 0: no working path, -1: not known.

    `gpus`: candidates x nodes. `active`: by node, above 0 where other workloads use the network.
    """
    inside = _inside(rates, gpus).min(axis=1, initial=UNLIMITED)
    outside = _between(rates, gpus, active)
    spans = (gpus > 0).sum(axis=1) > 1
    found: IntArray = np.where(spans, np.minimum(inside, outside), inside)
    return np.where(spans & (outside == NOT_KNOWN), NOT_KNOWN, found)


def all_reduce_us(rates: NetworkRates, gpus: IntArray, size: int, active: Active = None) -> IntArray:
    """Microseconds by candidate; NO_PATH_US: no working path, -1: not known."""
    total = gpus.sum(axis=1)
    return transfer_us(size * 2 * np.maximum(total - 1, 0), total, bus_bandwidth(rates, gpus, active))


def transfer_us(moved: IntArray, divisor: IntArray, mb_s: IntArray) -> IntArray:
    """`moved / divisor` bytes at this rate, rounded up. One MB/s is one byte a microsecond."""
    below = np.maximum(divisor, 1) * np.maximum(mb_s, 1)
    us: IntArray = -(-np.asarray(moved, np.int64) // below)
    us = np.where(mb_s == 0, np.where(us > 0, NO_PATH_US, 0), us)
    return np.where(mb_s == NOT_KNOWN, NOT_KNOWN, us)


def step_us(
    rates: NetworkRates, gpus: IntArray, split: Parallelism, traffic: StepTraffic, active: Active = None
) -> IntArray:
    """Communication of one training step by candidate: tensor, then pipeline, then data parallel, one after another."""
    total, widest = gpus.sum(axis=1), gpus.max(axis=1, initial=0)
    spans = (gpus > 0).sum(axis=1) > 1
    outside = _between(rates, gpus, active)
    tensor = max(1, split.tensor)
    # A tensor group inside a node uses the links between its own GPUs; a larger one also uses the network.
    group = np.minimum(gpus, tensor)
    within = _inside(rates, group).min(axis=1, initial=UNLIMITED)
    crosses = spans & (widest < tensor)
    tensor_us = transfer_us(
        np.full(len(total), traffic.tensor_bytes * 2 * (tensor - 1), np.int64),
        np.full(len(total), tensor, np.int64),
        _slower(within, outside, crosses),
    )
    # The data-parallel groups of a node run at once and share its ports.
    copies = np.array([split.data_of(int(each)) for each in total], np.int64)
    groups = np.maximum(1, np.minimum(widest, tensor * np.maximum(1, widest // np.maximum(1, tensor * copies))))
    per_group = np.where(outside > 0, outside // groups, outside)
    among = _inside(rates, gpus).min(axis=1, initial=UNLIMITED)
    leaves_node = spans & (copies * tensor > widest)
    data_us = transfer_us(
        traffic.data_bytes * 2 * np.maximum(copies - 1, 0), copies, _slower(among, per_group, leaves_node)
    )
    per_gpu = np.where(outside > 0, outside // np.maximum(widest, 1), outside)
    pipeline = np.full(len(total), traffic.pipeline_bytes * (split.pipeline > 1), np.int64)
    pipeline_us = transfer_us(pipeline, np.ones(len(total), np.int64), _slower(within, per_gpu, spans))
    parts = np.stack([tensor_us, pipeline_us, data_us])
    summed = np.minimum(parts.sum(axis=0), NO_PATH_US)
    return np.where((parts == NOT_KNOWN).any(axis=0), NOT_KNOWN, summed)


def _slower(inside: IntArray, outside: IntArray, crosses: BoolArray) -> IntArray:
    both = np.where(outside == NOT_KNOWN, NOT_KNOWN, np.minimum(inside, outside))
    return np.where(crosses, both, inside)


def _inside(rates: NetworkRates, gpus: IntArray) -> IntArray:
    """Candidates x nodes: what each GPU of the job sends to its others in the node; UNLIMITED where it is alone."""
    mesh = rates.pair_mb_s * np.maximum(gpus - 1, 0)
    found: IntArray = np.where(rates.is_switched, rates.pair_mb_s, mesh)
    return np.where(gpus > 1, found, UNLIMITED)


def _between(rates: NetworkRates, gpus: IntArray, active: Active) -> IntArray:
    """By candidate: what its slowest node sends to the others over all rails together."""
    uses = gpus > 0
    if not rates.rails:
        return np.full(len(gpus), NOT_KNOWN, np.int64)
    if not isinstance(active, ActiveNodes):
        active = everywhere(np.zeros(gpus.shape[1], np.int64) if active is None else active, rates)
    on_rails = zip(rates.rails, active.rails, strict=True)
    by_rail = np.stack(
        [_rail(rail, uses, others, active.busy_permille) for rail, others in on_rails]
    )  # rails x candidates: the slowest node
    on_rail = np.stack([(~uses | (rail.leaf_of_node >= 0)).all(axis=1) for rail in rates.rails])
    known = by_rail != NOT_KNOWN
    common = on_rail.sum(axis=0)
    slowest = np.where(on_rail & known, by_rail, UNLIMITED).min(axis=0)
    found = np.where(common > 0, np.where(slowest < UNLIMITED, slowest * common, NOT_KNOWN), 0)
    for tier, others in zip(rates.tiers, active.tiers, strict=True):
        share = _share(tier.domain_of_node, tier.uplink_mb_s, uses, others, active.busy_permille)
        found = np.where(found == NOT_KNOWN, NOT_KNOWN, np.minimum(found, share))
    return found


def _rail(rail: RailRates, uses: BoolArray, others: IntArray, busy: IntArray | None) -> IntArray:
    ports = np.where(uses & (rail.leaf_of_node >= 0) & (rail.port_mb_s >= 0), rail.port_mb_s, UNLIMITED).min(axis=1)
    share = _share(rail.leaf_of_node, rail.uplink_mb_s, uses, others, busy)
    slowest: IntArray = np.minimum(ports, share)
    return np.where(slowest == UNLIMITED, NOT_KNOWN, slowest)


def _share(
    domain_of_node: IntArray, uplink_mb_s: IntArray, uses: BoolArray, others: IntArray, busy_permille: IntArray | None
) -> IntArray:
    """By candidate: the smallest share of a domain's links among its nodes, if it spans several domains.

    A node of others counts as much as its ports were measured to be busy; the candidate's own nodes count in full.
    """
    known = domain_of_node >= 0
    count = len(uplink_mb_s)
    if not count or not known.any():
        return np.full(len(uses), UNLIMITED, np.int64)
    own = _count_in_domains(uses & known, domain_of_node, count)
    spans = (own > 0).sum(axis=1) > 1
    if busy_permille is None:
        base = np.bincount(domain_of_node[known & (others > 0)], minlength=count)
        busy = base + _count_in_domains(uses & known & (others == 0), domain_of_node, count)
        per_node = uplink_mb_s // np.maximum(busy, 1)
    else:
        sends = np.where(others > 0, busy_permille, 0)
        base = np.bincount(domain_of_node[known], sends[known], count).astype(np.int64)
        busy = base + _count_in_domains(uses & known, domain_of_node, count, 1000 - sends)
        per_node = uplink_mb_s * 1000 // np.maximum(busy, 1)
    share = np.where((own > 0) & (uplink_mb_s >= 0), per_node, UNLIMITED)
    return np.where(spans, share.min(axis=1), UNLIMITED)


def _count_in_domains(
    uses: BoolArray, domain_of_node: IntArray, count: int, weights: IntArray | None = None
) -> IntArray:
    """Candidates x domains: the candidate's nodes in each, or the sum of their weights."""
    candidate, node = uses.nonzero()
    of_node = weights[node] if weights is not None else None
    found = np.bincount(candidate * count + domain_of_node[node], of_node, minlength=len(uses) * count)
    return found.astype(np.int64).reshape(len(uses), count)
