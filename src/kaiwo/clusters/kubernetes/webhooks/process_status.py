"""The state of the webhooks' process, and what it has counted, for /readyz and metrics."""

import time
from collections import Counter

from kaiwo.clusters.kubernetes.webhooks.process_messages import Counted
from kaiwo.clusters.kubernetes.webhooks.request_counts import RequestCounts

NOTICED_S = 5.0  # a restart takes less, and no probe needs to know


class WebhookStatus:
    def __init__(self) -> None:
        self.counts = RequestCounts()
        self.dropped: Counter[str] = Counter()  # connections and requests of strangers, by cause
        self.connections = 0
        self.restarts = 0
        self.is_serving = False
        self._cause = ""  # why the last process ended
        self._down_since_s: float | None = None

    def serves(self) -> None:
        self.is_serving, self._down_since_s = True, None

    def ended(self, cause: str) -> None:
        self.restarts += 1
        self.is_serving, self.connections, self._cause = False, 0, cause
        if self._down_since_s is None:
            self._down_since_s = time.monotonic()

    def add(self, counted: Counted) -> None:
        self.counts.add(counted)
        self.dropped.update(counted.dropped)
        self.connections = counted.connections

    @property
    def problem(self) -> str:
        """Why the webhooks have not answered for some time; empty: they do, or never did yet."""
        if self._down_since_s is None or time.monotonic() - self._down_since_s < NOTICED_S:
            return ""
        down_s = int(time.monotonic() - self._down_since_s)
        return f"the webhooks have not answered for {down_s} s; their process is being restarted ({self._cause})"
