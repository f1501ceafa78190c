"""How often something may happen: a bucket that fills at a steady rate and is emptied by use."""

import math
import time
from collections.abc import Callable


class Bucket:
    """Holds `burst` drops at most and gains `per_s` a second."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self.burst = burst
        self._clock = clock
        self._drops = burst
        self._at = clock()

    def take(self) -> bool:
        """Use one drop; False when there is none."""
        now = self._clock()
        self._drops = min(self.burst, self._drops + (now - self._at) * self.per_s)
        self._at = now
        if self._drops < 1:
            return False
        self._drops -= 1
        return True

    @property
    def wait_s(self) -> int:
        """When to try again, in whole seconds."""
        return max(1, math.ceil((1 - self._drops) / self.per_s))
