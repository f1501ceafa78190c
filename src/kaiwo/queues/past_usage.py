"""Past usage with a half-life: a queue that recently used more than its weight's part gets less of the surplus.

In:    what queues use, and for how long.   Out: their decayed part of the cluster; weights adjusted by it.
Never: reads a clock, or uses floating point: the same history gives the same bits on every machine.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from kaiwo.queues.resource_division import MAX_WEIGHT
from kaiwo.snapshot.array_types import IntArray, Rows

WHOLE_PART = 1 << 20  # all of the cluster
PLAIN_MILLI = 1000
DECAY_SCALE = 1 << 60  # of one step of decay: a second of a long half-life still counts

# 2 to the power of -1/2, -1/4, -1/8 ...: any fraction of a half-life is a product of these.
_ROOTS = [isqrt(DECAY_SCALE * DECAY_SCALE // 2)]
for _ in range(39):
    _ROOTS.append(isqrt(_ROOTS[-1] * DECAY_SCALE))


class PastUsage(NamedTuple):
    """Each queue's part of the cluster per resource, averaged over the past; recent usage counts more."""

    part: IntArray  # in units of 1 / WHOLE_PART**2: small steps of a long half-life must not vanish

    @property
    def parts(self) -> IntArray:
        """In units of 1 / WHOLE_PART, as `adjust_weights` takes them."""
        return self.part // WHOLE_PART


def advance(before: PastUsage, used: IntArray, totals: IntArray, elapsed_s: int, half_life_s: int) -> PastUsage:
    """The average after `elapsed_s` more seconds of using `used`: one half-life moves it half the way."""
    target = used * WHOLE_PART // np.maximum(totals, 1) * WHOLE_PART
    distance = (before.part - target).astype(object)  # exact beyond 64 bits
    return PastUsage(target + (distance * decay_factor(elapsed_s, half_life_s) // DECAY_SCALE).astype(np.int64))


def decay_factor(elapsed_s: int, half_life_s: int) -> int:
    """The part of the past that still counts: 2 to the power of -elapsed / half-life, in units of 1 / DECAY_SCALE."""
    half_life_s = max(half_life_s, 1)
    halvings, rest_s = divmod(elapsed_s, half_life_s)
    kept = DECAY_SCALE
    for root in _ROOTS:
        rest_s *= 2
        if rest_s >= half_life_s:
            rest_s -= half_life_s
            kept = kept * root // DECAY_SCALE
    return kept >> halvings


def adjust_weights(group: Rows, weight: IntArray, parts: IntArray, strength_milli: int) -> IntArray:
    """Weights of competitors (equal `group`) adjusted by past usage: w + k (w - u), at least 0.

    w is the weight's part of the group's weights, u the recent part of the cluster, k the strength. A queue that used
    exactly its weight's part keeps its weight. The result has its own unit; only its proportions count.
    """
    if strength_milli <= 0:
        return np.minimum(weight, MAX_WEIGHT)
    total = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.add.at(total, group, weight)
    own = weight * WHOLE_PART // np.maximum(total[group], 1)
    adjusted = own * (PLAIN_MILLI + strength_milli) - parts * strength_milli
    scaled: IntArray = np.maximum(adjusted, 0) * (MAX_WEIGHT // WHOLE_PART) // (PLAIN_MILLI + strength_milli)
    return scaled
