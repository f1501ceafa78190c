"""How long the cycles take, as a histogram that only ever grows."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class CycleTimes:
    """Fed with each cycle once."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._last = -1
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def note(self, cycle: Any) -> None:
        """A cycle that came to its end; the one that was noted last is not noted again."""
        if cycle is None or cycle.number == self._last:
            return
        self._last = cycle.number
        took_s = cycle.took_us / 1_000_000
        self.count += 1
        self.sum_s += took_s
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1

    def buckets(self) -> Iterator[tuple[float, int]]:
        """How many took at most so long."""
        below = 0
        for bound, count in zip(BOUNDS_S, self._counts, strict=False):
            below += count
            yield bound, below
