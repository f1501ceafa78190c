"""How late the event loop runs: what leases, probes and streams feel."""

import asyncio
import time
from collections import deque

INTERVAL_S = 0.05
SAMPLES = 1200  # the last minute


class LoopLag:
    """Sleeps a short time again and again, and keeps by how much it overslept."""

    def __init__(self, interval_s: float = INTERVAL_S, samples: int = SAMPLES) -> None:
        self._interval_s = interval_s
        self._samples: deque[float] = deque(maxlen=samples)
        self.worst_s = 0.0  # since the start

    def __len__(self) -> int:
        return len(self._samples)

    async def run(self) -> None:
        """For ever."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(self._interval_s)
            late_s = max(0.0, time.perf_counter() - began - self._interval_s)
            self._samples.append(late_s)
            self.worst_s = max(self.worst_s, late_s)

    def quantile(self, part: float) -> float:
        """Of the samples that are kept; 0 before the first."""
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

    def quantiles(self) -> dict[str, float]:
        """The ones to watch; 1 is the worst that is kept."""
        return {name: self.quantile(float(name)) for name in ("0.5", "0.99", "1")}
