"""Wall time as in the timestamps of the cluster's objects, which does not jump while a cycle decides.

A change of the system's clock by a minute or more counts from when it is followed: between two cycles, together with
everything that was measured from the clock as it was.
"""

import time
from collections.abc import Callable

STEP_S = 60.0  # a smaller difference is drift, or a delay between two readings: it is followed at once


def ticks() -> float:
    """Real seconds that also pass while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WallTime:
    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset_s = wall() - ticks()

    def now_s(self) -> int:
        ticks_s, wall_s = self._ticks(), self._wall()
        if abs(wall_s - ticks_s - self._offset_s) < STEP_S:
            self._offset_s = wall_s - ticks_s
        return int(ticks_s + self._offset_s)

    def take_step(self) -> int:
        """Follow the system's clock: by how many seconds it was set; 0: it was not."""
        before_s = self.now_s()
        self._offset_s = self._wall() - self._ticks()
        step_s = self.now_s() - before_s
        return step_s if abs(step_s) >= STEP_S - 1 else 0


class FollowedClock:
    """See `protocol.WallClock`."""

    def __init__(self, time: WallTime, moved: Callable[[int], None]) -> None:
        self._time, self._moved = time, moved

    async def follow_system_clock(self) -> int:
        step_s = self._time.take_step()
        if step_s:
            self._moved(step_s)
        return step_s
