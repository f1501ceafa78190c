"""Sum over all ways to fill a GPU with shares, each way weighted by what it is worth.

Values are soft maxima: ways that are nearly as good as the best one count, too, so that a small error of a price does
not change a decision. Only additions and products are used, so that every machine gets the same sums.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from kaiwo.model.gpus.gpu import WHOLE_MILLI
from kaiwo.snapshot.array_types import IntArray

FloatArray = NDArray[np.float64]

STEP_MILLI = 10  # free parts of a GPU are rounded down to it, shares up
LEVELS = WHOLE_MILLI // STEP_MILLI  # a whole GPU
UNITS = 64  # a value is a logarithm, in this many parts
SOFTNESS_MILLI = 12  # ways that differ by this count as e to one
UNITS_PER_GPU = WHOLE_MILLI * UNITS // SOFTNESS_MILLI
CPU_SHIFT = 10  # prices are for 1,024 thousandths of a CPU
# What CPU may be worth, in units. The value of a node is the least over these: its CPU and its GPUs bound each
# other, and the price at which both bind is the node's own.
CPU_PRICES = np.array([0, 16, 39, 66, 98, 147, 229, 328, 573, 1638], np.int64)


class ShareSizes(msgspec.Struct, frozen=True):
    """The sizes of shares in the mix, in steps, sorted; and how many levels of a GPU can be computed at once."""

    steps: IntArray

    @property
    def block(self) -> int:
        """No share is smaller, so this many levels do not depend on each other."""
        return int(self.steps[0]) if len(self.steps) else LEVELS

    def fill(self, start: FloatArray, gains: FloatArray) -> FloatArray:
        """Solve `way[r] = way[r-1] + start[r] + sum over s of gains[s] * way[r-s]` for all levels r.

        `start` is by level, then as `gains` behind its first axis, which is the share size.
        """
        padded = np.zeros((2 * LEVELS + 1, *start.shape[1:]))
        way = padded[LEVELS:]
        way[0] = start[0]
        first = 1
        while first <= LEVELS:
            levels = np.arange(first, min(first + self.block, LEVELS + 1))
            more = start[levels]
            if len(self.steps):
                before = padded[LEVELS + levels[:, None] - self.steps[None, :]]
                more = more + (before * gains[None]).sum(axis=1)
            way[levels] = way[first - 1] + np.cumsum(more, axis=0)
            first += self.block
        return way


def share_steps(milli: int) -> int:
    """Shares below a twentieth of a GPU count as one: otherwise each level would have to wait for the one before."""
    return max(-(-milli // STEP_MILLI), LEVELS // 20)
