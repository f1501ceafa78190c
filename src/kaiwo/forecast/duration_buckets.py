"""Durations on a logarithmic scale: four buckets for each doubling, and what a distribution over them says.

In:    a distribution as integers, one for each bucket.   Out: quantiles and means in whole seconds.
Never: uses floating point, so equal histories give equal forecasts on every machine.
"""

from bisect import bisect_right
from itertools import pairwise
from math import isqrt

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

PER_DOUBLING = 4
BUCKETS = 100  # the last one begins at 2^24.75 s, which is 326 days
# The fourth root of 2^n, rounded down. The first few buckets of less than a second are empty.
EDGES = tuple(isqrt(isqrt(1 << bucket)) for bucket in range(BUCKETS + 1))
MIDDLES: Counts = np.array([(low + high) // 2 for low, high in pairwise(EDGES)], np.int64)


def bucket_of(run_s: int) -> int:
    return min(BUCKETS - 1, bisect_right(EDGES, max(1, run_s)) - 1)


def quantile_s(distribution: Counts, part_ppm: int) -> int:
    """The time that this part of the distribution does not exceed; inside a bucket it grows evenly."""
    sums = distribution.cumsum()
    total = int(sums[-1])
    if total <= 0:
        return 0
    target = -(-total * part_ppm // 1_000_000)
    bucket = int(np.searchsorted(sums, max(1, target)))
    here = int(distribution[bucket])
    into = target - (int(sums[bucket]) - here)
    low, high = EDGES[bucket], EDGES[bucket + 1]
    return low + (high - low) * into // here


def quantile_beyond_s(distribution: Counts, elapsed_s: int, part_ppm: int) -> int:
    """The same for what has taken this long and goes on; 0: nothing took longer. Of its bucket, what is left counts.

    With the whole bucket, which is a fifth as wide as its time is long, much of what runs would be about to end.
    """
    bucket = bucket_of(elapsed_s)
    low, high = max(EDGES[bucket], elapsed_s), EDGES[bucket + 1]
    width = high - EDGES[bucket]
    left = distribution.copy()
    left[:bucket] = 0
    here = left[bucket] = int(distribution[bucket]) * max(0, high - low) // max(1, width)
    total = int(left.sum())
    if total <= 0:
        return 0
    target = max(1, -(-total * part_ppm // 1_000_000))
    if target <= here:
        return low + (high - low) * target // here
    return quantile_s(left, part_ppm)


def mean_s(distribution: Counts) -> int:
    total = int(distribution.sum())
    return int((distribution * MIDDLES).sum()) // total if total > 0 else 0
