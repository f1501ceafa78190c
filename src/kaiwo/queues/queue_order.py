"""The order in which sibling queues are served.

In:    the queues' shares, and what the next workload of each needs.   Out: one row of keys per queue, the lowest first.
Only siblings are compared: walk down the tree, at each level to the child with the lowest keys.
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.model.queue import POLICY_RULES, SharePolicy
from kaiwo.queues.reclaim_rules import QueueShares
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
)

PPM = 1_000_000
_ROOT_CODE = SHARE_POLICIES.index(SharePolicy.DRF)  # of the queues without a parent
_NO_SHARE = 1 << 50  # above every ratio: uses what it has no share of


def entitlement(shares: QueueShares, totals: IntArray) -> IntArray:
    """By queue and resource: quota or fair share, whichever is more, within the limit; unlimited counts as all."""
    entitled = np.minimum(np.maximum(shares.quota, shares.fair), shares.limit)
    return np.where(entitled >= INFINITE, totals, entitled)


def dominant_ppm(used: IntArray, entitled: IntArray) -> IntArray:
    """The largest part that a queue uses of what it is entitled to, over all resources."""
    ratio = PPM * used // np.maximum(entitled, 1)
    ratio = np.where(entitled > 0, ratio, np.where(used > 0, _NO_SHARE + used, 0))
    highest: IntArray = ratio.max(axis=1)
    return highest


def queue_keys(shares: QueueShares, totals: IntArray, rows: Rows, need: IntArray, oldest_s: IntArray) -> IntArray:
    """The first column counts most. `need` and `oldest_s` have one entry for each of `rows`.

    1 what the parent's policy puts first: priority (StrictPriority) or the longest wait (FIFO); 2 is it over its fair
    share; 3 is it over its quota with the next workload; 4 priority; 5 does it use something of which it has no share;
    6 dominant share with the next workload, 7 without; 8 the smaller workload; 9 age.
    """
    tree = shares.queues.tree
    parent = tree.parent[rows]
    code = np.where(parent == NO_PARENT, _ROOT_CODE, tree.policy_code[parent])
    priority = -shares.queues.priority[rows]
    first = np.where(BY_WAIT[code], oldest_s, np.where(SERVES_FULLY[code], priority, 0))
    used, quota, fair = (each[rows, : len(RESOURCES)] for each in (shares.used, shares.quota, shares.fair))
    entitled = entitlement(shares, totals)[rows, : len(RESOURCES)]
    with_next = used + need
    return np.column_stack(
        (
            first,
            (used > fair).any(axis=1),
            (with_next > quota).any(axis=1),
            np.where(BY_PRIORITY[code], priority, 0),
            ((entitled == 0) & (with_next > 0)).any(axis=1),
            dominant_ppm(with_next, entitled),
            dominant_ppm(used, entitled),
            need[:, GPU],
            tree.age[rows],
        )
    ).astype(np.int64)


class QueueOrderKeys:
    """The keys of one queue at a time, in plain integers, since they are needed after every turn."""

    def __init__(self, shares: QueueShares, entitled: IntArray) -> None:
        tree = shares.queues.tree
        parents = [int(parent) for parent in tree.parent]
        self._used = shares.used  # live: the view's own array
        self._fair: list[list[int]] = shares.fair.tolist()
        self._quota: list[list[int]] = shares.quota.tolist()
        self._entitled: list[list[int]] = entitled[:, : len(RESOURCES)].tolist()
        policies = [SharePolicy.DRF if parent == NO_PARENT else tree.policy[parent] for parent in parents]
        self._rules = [POLICY_RULES[policy] for policy in policies]
        self._priority: list[int] = (-shares.queues.priority).tolist()
        self._age: list[int] = tree.age.tolist()

    def keys(self, row: int, need: tuple[int, ...], since_s: int) -> tuple[int, ...]:
        """The row of `queue_keys` for this queue, written out for the three resources."""
        gpu, cpu, memory = self._used[row, : len(RESOURCES)].tolist()
        next_gpu, next_cpu, next_memory = gpu + need[0], cpu + need[1], memory + need[2]
        fair, quota, entitled = self._fair[row], self._quota[row], self._entitled[row]
        priority = self._priority[row]
        by_priority, by_wait, serves_fully = self._rules[row]
        return (
            since_s if by_wait else priority if serves_fully else 0,
            1 if gpu > fair[0] or cpu > fair[1] or memory > fair[2] else 0,
            1 if next_gpu > quota[0] or next_cpu > quota[1] or next_memory > quota[2] else 0,
            priority if by_priority else 0,
            1
            if (next_gpu and not entitled[0]) or (next_cpu and not entitled[1]) or (next_memory and not entitled[2])
            else 0,
            _dominant(next_gpu, next_cpu, next_memory, entitled),
            _dominant(gpu, cpu, memory, entitled),
            need[GPU],
            self._age[row],
        )


def _dominant(gpu: int, cpu: int, memory: int, entitled: Sequence[int]) -> int:
    most_gpu, most_cpu, most_memory = entitled
    gpu = PPM * gpu // most_gpu if most_gpu else _NO_SHARE + gpu if gpu else 0
    cpu = PPM * cpu // most_cpu if most_cpu else _NO_SHARE + cpu if cpu else 0
    memory = PPM * memory // most_memory if most_memory else _NO_SHARE + memory if memory else 0
    return max(gpu, cpu, memory)
