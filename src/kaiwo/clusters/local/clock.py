"""The local cluster's clock: wall time, or virtual time that a speed scales and that stands still while Kaiwo is down.

In:    the time that was kept, a speed, and a source of ticks.   Out: the cluster's time in seconds.
Never: goes backwards, over restarts too: it shows no time beyond its last promise, and that was on disk before.
"""

import time
from collections.abc import Callable

PROMISE_S = 5.0  # of real time ahead. After a crash virtual time goes on from the promise, so it may skip that much.


def ticks() -> float:
    """Real seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Time is `start + (ticks since then) * speed`."""

    def __init__(self, start_ms: int, speed: float = 1.0, ticks: Callable[[], float] = ticks) -> None:
        self.speed = speed
        self._ticks = ticks
        self._start_ms = start_ms
        self._start_ticks = ticks()
        self._promised_ms = start_ms

    def now_s(self) -> int:
        """Whole seconds."""
        return self.now_ms() // 1000

    def now_ms(self) -> int:
        """Milliseconds."""
        return min(self._true_ms(), self._promised_ms)

    def next_promise_ms(self) -> int:
        """The time to keep before the clock may go on towards it."""
        return max(self._promised_ms, self._true_ms() + int(PROMISE_S * 1000 * self.speed))

    def promise(self, kept_ms: int) -> None:
        """This time was kept: after a crash the clock goes on from there."""
        self._promised_ms = kept_ms

    def real_s_until(self, at_s: int) -> float:
        """Real seconds until the clock shows `at_s`; 0 when it already does."""
        return max(at_s * 1000 - self.now_ms(), 0) / 1000 / self.speed

    def _true_ms(self) -> int:
        return self._start_ms + int((self._ticks() - self._start_ticks) * 1000 * self.speed)


def first_time_ms(kept: str, is_wall_time: bool) -> int:
    """Where the clock begins: virtual time where it stood, wall time at now; neither before what was kept."""
    wall_ms = int(time.time() * 1000)
    if not kept:
        return wall_ms
    return max(int(kept), wall_ms) if is_wall_time else int(kept)
