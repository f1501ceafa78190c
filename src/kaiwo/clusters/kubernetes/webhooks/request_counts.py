"""What the webhooks were asked, what they answered and how long that took: counts that only ever grow.

In:    one answer after the other.   Out: sums by door, by reason of a refusal, and a histogram of times.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)
ANSWERS = ("passed", "changed", "refused", "broken")


class Tally:
    """One for the process."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()  # door, answer
        self.refusals: Counter[tuple[str, str]] = Counter()  # door, reason
        self.sums_s: dict[str, float] = {}  # seconds, by door
        self._counts: dict[str, list[int]] = {}

    def note(self, door: str, answer: str, reason: str, took_s: float) -> None:
        """One question was answered. `reason`: of a refusal."""
        self.answers[door, answer] += 1
        if answer == "refused":
            self.refusals[door, reason] += 1
        self.sums_s[door] = self.sums_s.get(door, 0.0) + took_s
        self._counts.setdefault(door, [0] * (len(BOUNDS_S) + 1))[bisect_left(BOUNDS_S, took_s)] += 1

    def doors(self) -> list[str]:
        """Those that were asked."""
        return sorted(self._counts)

    def buckets(self, door: str) -> Iterator[tuple[str, float]]:
        """How many took at most so long, as Prometheus wants it."""
        below = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts[door], strict=True):
            below += count
            yield bound, float(below)
