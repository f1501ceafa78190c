"""Count the requests to the webhooks, for metrics: answers, reasons of refusals, and a histogram of times."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)


class RequestCounts:
    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()  # endpoint, answer: passed, changed, refused or broken
        self.refusals: Counter[tuple[str, str]] = Counter()  # endpoint, reason
        self.sums_s: dict[str, float] = {}  # by endpoint
        self._counts: dict[str, list[int]] = {}

    def count(self, endpoint: str, answer: str, reason: str, took_s: float) -> None:
        """A request was answered. `reason`: of a refusal."""
        self.answers[endpoint, answer] += 1
        if answer == "refused":
            self.refusals[endpoint, reason] += 1
        self.sums_s[endpoint] = self.sums_s.get(endpoint, 0.0) + took_s
        self._counts.setdefault(endpoint, [0] * (len(BOUNDS_S) + 1))[bisect_left(BOUNDS_S, took_s)] += 1

    def endpoints(self) -> list[str]:
        return sorted(self._counts)

    def buckets(self, endpoint: str) -> Iterator[tuple[str, float]]:
        """How many requests took at most this time, as Prometheus expects it."""
        below = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts[endpoint], strict=True):
            below += count
            yield bound, float(below)
