"""The queues as a tree: who stands above whom, and what a queue has from those above it.

In:    queues sorted by name, and each one's path to its root.   Out: arrays by row; row numbers are the table's.
"""

from collections.abc import Sequence

import numpy as np

from kaiwo.model.queue import DEFAULT_FAIRNESS, Fairness, Queue, ReclaimStrategy, SharePolicy
from kaiwo.snapshot.arrays import IntArray, Rows

NOBODY = -1
POLICIES = list(SharePolicy)  # a policy's code is its position


class QueueTree:
    """Changes only when the set of queues or one of their definitions does."""

    def __init__(self, queues: Sequence[Queue], path: Sequence[tuple[int, ...]]) -> None:
        count = len(queues)
        self.parent: Rows = np.array([each[1] if len(each) > 1 else NOBODY for each in path], np.intp)
        self.depth: IntArray = np.array([len(each) - 1 for each in path], np.int64)
        height = max((len(each) for each in path), default=0)
        # ancestors[d, row]: the queue at depth d on the way from the root to this row; NOBODY below the row itself.
        self.ancestors: Rows = np.full((height, count), NOBODY, np.intp)
        for row, each in enumerate(path):
            self.ancestors[: len(each), row] = each[::-1]
        by_parent = np.lexsort((np.arange(count), self.parent))
        self.levels: list[Rows] = [by_parent[self.depth[by_parent] == depth] for depth in range(height)]
        self.age: IntArray = np.zeros(count, np.int64)  # 0 is the oldest; equal ages fall to names
        oldest_first = sorted(range(count), key=lambda row: (queues[row].created_s, queues[row].name))
        self.age[oldest_first] = np.arange(count)
        fairness = [_inherited([queues[above].fairness for above in each]) for each in path]
        self.policy: list[SharePolicy] = [each[0] for each in fairness]  # among the queues right below this one
        self.policy_code: IntArray = np.array([POLICIES.index(each) for each in self.policy], np.int64)
        self.reclaim_strategy: list[ReclaimStrategy] = [each[1] for each in fairness]
        self.min_runtime_s: IntArray = np.array([each[2] for each in fairness], np.int64)

    def parting(self, row: int, among: Rows | None = None) -> tuple[Rows, Rows]:
        """Where the path to `row` and the path to each queue part: per queue, the first differing one on either side.

        Where one path is the beginning of the other both sides are its end.
        """
        own = self.ancestors[: int(self.depth[row]) + 1, row]
        rows = np.arange(len(self.depth)) if among is None else among
        shared = (self.ancestors[: len(own), rows] == own[:, None]).cumprod(axis=0).sum(axis=0)
        ours = own[np.minimum(shared, len(own) - 1)]
        theirs = self.ancestors[np.minimum(shared, self.depth[rows]), rows]
        return ours, theirs


def _inherited(upwards: Sequence[Fairness]) -> tuple[SharePolicy, ReclaimStrategy, int]:
    """Each wish from the nearest queue that has one."""
    wishes = (*upwards, DEFAULT_FAIRNESS)
    return (
        next(wish.policy for wish in wishes if wish.policy is not None),
        next(wish.reclaim_strategy for wish in wishes if wish.reclaim_strategy is not None),
        next(wish.min_runtime_s for wish in wishes if wish.min_runtime_s is not None),
    )
