"""Count the requests to the webhooks, for metrics: answers, reasons of refusals, and a histogram of times."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from kaiwo.clusters.kubernetes.webhooks.process_messages import Counted

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0)


class RequestCounts:
    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()  # endpoint, answer: passed, changed, refused or broken
        self.refusals: Counter[tuple[str, str]] = Counter()  # endpoint, reason
        self.sums_s: dict[str, float] = {}  # by endpoint
        self._times: dict[str, list[int]] = {}  # by endpoint, for each bound

    def count(self, endpoint: str, answer: str, reason: str, took_s: float) -> None:
        """A request was answered. `reason`: of a refusal."""
        self.answers[endpoint, answer] += 1
        if answer == "refused":
            self.refusals[endpoint, reason] += 1
        self._add_time(endpoint, bisect_left(BOUNDS_S, took_s), 1, took_s)

    def endpoints(self) -> list[str]:
        return sorted(self._times)

    def buckets(self, endpoint: str) -> Iterator[tuple[str, float]]:
        """How many requests took at most this time, as Prometheus expects it."""
        below = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._times[endpoint], strict=True):
            below += count
            yield bound, float(below)

    def as_message(self) -> Counted:
        return Counted(_nested(self.answers), _nested(self.refusals), self._times, self.sums_s)

    def add(self, counted: Counted) -> None:
        for endpoint, answers in counted.answers.items():
            self.answers.update({(endpoint, answer): count for answer, count in answers.items()})
        for endpoint, reasons in counted.refusals.items():
            self.refusals.update({(endpoint, reason): count for reason, count in reasons.items()})
        for endpoint, times in counted.times.items():
            for index, count in enumerate(times):
                self._add_time(endpoint, index, count, 0.0)
            self.sums_s[endpoint] += counted.sums_s.get(endpoint, 0.0)

    def _add_time(self, endpoint: str, index: int, count: int, took_s: float) -> None:
        self._times.setdefault(endpoint, [0] * (len(BOUNDS_S) + 1))[index] += count
        self.sums_s[endpoint] = self.sums_s.get(endpoint, 0.0) + took_s


def _nested(counter: "Counter[tuple[str, str]]") -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (endpoint, name), count in counter.items():
        found.setdefault(endpoint, {})[name] = count
    return found
