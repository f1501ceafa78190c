"""A strategy for choosing GPUs on a node: take the one whose neighbours are least busy, so that heat spreads."""

import numpy as np

from kaiwo.plugins import MILLI, USABLE, IntArray, Request, View


class SpreadHeat:
    """The lowest rank first: how much the device and its two neighbours in the chassis have to do already."""

    name, version = "spread-heat", "1.0.0"

    def allocation(self, view: View, want: Request, node: int, columns: IntArray) -> IntArray:
        busy = np.where(view.gpus[node, USABLE] > 0, 1000 - view.gpus[node, MILLI], 0)
        around = np.zeros_like(busy)
        around[1:] += busy[:-1]
        around[:-1] += busy[1:]
        rank: IntArray = (2 * busy + around)[columns]
        return rank
