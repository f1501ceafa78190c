"""Prefer nodes that seldom fail."""

import numpy as np

from kaiwo.model.request import Request
from kaiwo.plugins.contract import TOP_SCORE
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.learned.node_failures import WEIGHT
from kaiwo.snapshot.view import View, once_per_cycle


class SteadyNodes:
    """Use nodes last that failed much more often than others: one failure more than twice their mean is normal."""

    name, version, weight = "steady-nodes", "1", 20

    def is_silent(self, view: View, want: Request) -> bool:
        return not view.node_failures

    def score(self, view: View, want: Request, nodes: Rows) -> IntArray:
        return steadiness(view)[nodes]


@once_per_cycle
def steadiness(view: View) -> IntArray:
    """By node, 0..1000: 1000 for nodes that fail no more than is normal."""
    failed: IntArray = np.array([view.node_failures.get(name, 0) for name in view.nodes.names], np.int64)
    normal = WEIGHT + 2 * (failed.sum() - failed) // max(1, len(failed) - 1)
    found: IntArray = TOP_SCORE * normal // np.maximum(failed, normal)
    return found


PLUGINS = (SteadyNodes,)
