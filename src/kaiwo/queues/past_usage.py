"""Past use with a half-life: whoever used more than its weight's part lately gets less of the rest for a while.

In:    what queues use now, and how long that lasted.   Out: their decayed part of the cluster; weights bent by it.
Never: reads a clock, or works in floating point: the same history gives the same bits on every machine.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from kaiwo.queues.resource_division import MOST_WEIGHT
from kaiwo.snapshot.array_types import IntArray, Rows

WHOLE_PART = 1 << 20  # a part of 1: all of the cluster
PLAIN_MILLI = 1000
DECAY_SCALE = 1 << 60  # of one step of decay: a second of a long half-life still counts

# 2 to the power of -1/2, -1/4, -1/8 ...: any fraction of a half-life is a product of these.
_ROOTS = [isqrt(DECAY_SCALE * DECAY_SCALE // 2)]
for _ in range(39):
    _ROOTS.append(isqrt(_ROOTS[-1] * DECAY_SCALE))


class PastUsage(NamedTuple):
    """Each queue's part of the cluster per resource, averaged over the past: recent use counts more."""

    part: IntArray  # in units of 1 / (ONE * ONE): small steps of a long half-life must not vanish

    @property
    def parts(self) -> IntArray:
        """The same in units of 1 / ONE: what `bend_weights` takes."""
        return self.part // WHOLE_PART


def no_usage(queues: int, resources: int) -> PastUsage:
    """Nobody used anything."""
    return PastUsage(np.zeros((queues, resources), np.int64))


def advance(before: PastUsage, used: IntArray, totals: IntArray, elapsed_s: int, half_life_s: int) -> PastUsage:
    """The average after `elapsed_s` more seconds of using `used`: after one half-life it has come half the way."""
    target = used * WHOLE_PART // np.maximum(totals, 1) * WHOLE_PART
    distance = (before.part - target).astype(object)  # exact beyond 64 bits
    return PastUsage(target + (distance * decay_factor(elapsed_s, half_life_s) // DECAY_SCALE).astype(np.int64))


def decay_factor(elapsed_s: int, half_life_s: int) -> int:
    """How much of the past still counts after that time: 2 to the power of -elapsed / half-life, in 1 / 2**60."""
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
    """Weights of competitors (equal `group`) bent by their past use: w + k (w - u), at least 0.

    w is the weight's part of the group's weights, u the part of the cluster used lately, k the strength. Who used
    exactly its weight's part keeps its weight. The answer is in units of its own; only its proportions count.
    """
    if strength_milli <= 0:
        return np.minimum(weight, MOST_WEIGHT)
    total = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.add.at(total, group, weight)
    own = weight * WHOLE_PART // np.maximum(total[group], 1)
    bent = own * (PLAIN_MILLI + strength_milli) - parts * strength_milli
    scaled: IntArray = np.maximum(bent, 0) * (MOST_WEIGHT // WHOLE_PART) // (PLAIN_MILLI + strength_milli)
    return np.where(weight > 0, scaled, 0)
