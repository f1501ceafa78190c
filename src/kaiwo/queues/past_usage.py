"""Past use with a half-life: whoever used more than its weight's part lately gets less of the rest for a while.

In:    what queues use now, and how long that lasted.   Out: their decayed part of the cluster; weights bent by it.
Never: reads a clock, or works in floating point: the same history gives the same bits on every machine.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from kaiwo.queues.resource_division import MOST_WEIGHT
from kaiwo.snapshot.array_types import IntArray, Rows

ONE = 1 << 20  # a part of 1: all of the cluster
PLAIN_MILLI = 1000
FINE = 1 << 60  # of one step of decay: a second of a long half-life still counts

# 2 to the power of -1/2, -1/4, -1/8 ...: any fraction of a half-life is a product of these.
_ROOTS = [isqrt(FINE * FINE // 2)]
for _ in range(39):
    _ROOTS.append(isqrt(_ROOTS[-1] * FINE))


class Usage(NamedTuple):
    """Each queue's part of the cluster per resource, averaged over the past: recent use counts more."""

    part: IntArray  # in units of 1 / (ONE * ONE): small steps of a long half-life must not vanish

    @property
    def parts(self) -> IntArray:
        """The same in units of 1 / ONE: what `bend_weights` takes."""
        return self.part // ONE


def no_usage(queues: int, resources: int) -> Usage:
    """Nobody used anything."""
    return Usage(np.zeros((queues, resources), np.int64))


def advance(before: Usage, used: IntArray, totals: IntArray, elapsed_s: int, half_life_s: int) -> Usage:
    """The average after `elapsed_s` more seconds of using `used`: after one half-life it has come half the way."""
    target = used * ONE // np.maximum(totals, 1) * ONE
    distance = (before.part - target).astype(object)  # exact beyond 64 bits
    return Usage(target + (distance * keep_part(elapsed_s, half_life_s) // FINE).astype(np.int64))


def keep_part(elapsed_s: int, half_life_s: int) -> int:
    """How much of the past still counts after that time: 2 to the power of -elapsed / half-life, in 1 / 2**60."""
    half_life_s = max(half_life_s, 1)
    halvings, rest_s = divmod(elapsed_s, half_life_s)
    kept = FINE
    for root in _ROOTS:
        rest_s *= 2
        if rest_s >= half_life_s:
            rest_s -= half_life_s
            kept = kept * root // FINE
    return kept >> halvings


def bend_weights(group: Rows, weight: IntArray, parts: IntArray, strength_milli: int) -> IntArray:
    """Weights of competitors (equal `group`) bent by their past use: w + k (w - u), at least 0.

    w is the weight's part of the group's weights, u the part of the cluster used lately, k the strength. Who used
    exactly its weight's part keeps its weight. The answer is in units of its own; only its proportions count.
    """
    if strength_milli <= 0:
        return np.minimum(weight, MOST_WEIGHT)
    total = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.add.at(total, group, weight)
    own = weight * ONE // np.maximum(total[group], 1)
    bent = own * (PLAIN_MILLI + strength_milli) - parts * strength_milli
    scaled: IntArray = np.maximum(bent, 0) * (MOST_WEIGHT // ONE) // (PLAIN_MILLI + strength_milli)
    return np.where(weight > 0, scaled, 0)
