"""How late the event loop runs: what leases, probes and streams feel."""

import asyncio
import time
from collections import deque

INTERVAL_S = 0.05
SAMPLES = 1200  # a minute


class LoopLag:
    """Sleeps a short time again and again, and keeps by how much it overslept."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self.worst_s = 0.0  # since the start

    async def run(self) -> None:
        """For ever."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(INTERVAL_S)
            late_s = max(0.0, time.perf_counter() - began - INTERVAL_S)
            self._samples.append(late_s)
            self.worst_s = max(self.worst_s, late_s)

    def quantile(self, part: float) -> float:
        """In the last minute; 0 before the first sample."""
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0

    def quantiles(self) -> dict[str, float]:
        """The ones to watch; 1 is the worst of the last minute."""
        return {name: self.quantile(float(name)) for name in ("0.5", "0.99", "1")}
