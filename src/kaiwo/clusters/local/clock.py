"""The local cluster's clock: wall time, or virtual time at some speed, which stops while Kaiwo is down.

It never goes backwards, not even over a restart: it never passes its limit, which is stored before it takes effect.
"""

import time
from collections.abc import Callable

AHEAD_S = 5.0  # how far the limit is ahead, in real time; after a crash virtual time continues at the limit


def ticks() -> float:
    """Real seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    def __init__(self, start_ms: int, speed: float = 1.0, ticks: Callable[[], float] = ticks) -> None:
        self.speed = speed
        self._ticks, self._start_ticks = ticks, ticks()
        self._start_ms = self._limit_ms = start_ms

    def now_s(self) -> int:
        return self.now_ms() // 1000

    def now_ms(self) -> int:
        return min(self._true_ms(), self._limit_ms)

    def next_limit_ms(self) -> int:
        """The time to store before the clock may advance to it."""
        return max(self._limit_ms, self._true_ms() + int(AHEAD_S * 1000 * self.speed))

    def set_limit(self, stored_ms: int) -> None:
        """Call once this time is stored: after a crash the clock continues there."""
        self._limit_ms = stored_ms

    def real_s_until(self, at_s: int) -> float:
        """Real seconds until the clock shows `at_s`; 0 when it already does."""
        return max(at_s * 1000 - self.now_ms(), 0) / 1000 / self.speed

    def _true_ms(self) -> int:
        return self._start_ms + int((self._ticks() - self._start_ticks) * 1000 * self.speed)


def first_time_ms(stored: str, is_wall_time: bool) -> int:
    """Where the clock begins: virtual time where it stopped, wall time now; neither before the stored time."""
    wall_ms = int(time.time() * 1000)
    if not stored:
        return wall_ms
    return max(int(stored), wall_ms) if is_wall_time else int(stored)
