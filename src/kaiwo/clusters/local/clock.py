"""The local cluster's clock: wall time, or virtual time at some speed, which stops while Kaiwo is down.

It counts seconds that really pass, so a duration is never wrong. It does not go backwards over a restart: it never
passes its limit, which is stored before it takes effect. Only when the system's clock was changed does it follow, and
all stored times with it: at a start, and between two cycles.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

PLAUSIBLE_S = 1_700_000_000  # in 2023, before the first Kaiwo
STEP_S = 60.0  # a smaller difference is not a change of the system's clock, but drift or a moment's delay
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

    def step_s(self, wall_ms: int) -> int:
        """By how much the system's clock was set since this one began; 0: not at all, or to a time nobody believes."""
        step_ms = wall_ms - self._true_ms()
        return int(step_ms / 1000) if is_plausible(wall_ms) and abs(step_ms) >= STEP_S * 1000 else 0

    def move(self, by_s: int) -> None:
        """Call once all stored times have moved as far."""
        self._start_ms += by_s * 1000
        self._limit_ms += by_s * 1000

    def real_s_until(self, at_s: int) -> float:
        """Real seconds until the clock shows `at_s`; 0 when it already does."""
        return max(at_s * 1000 - self.now_ms(), 0) / 1000 / self.speed

    def _true_ms(self) -> int:
        return self._start_ms + int((self._ticks() - self._start_ticks) * 1000 * self.speed)


class SystemTime(NamedTuple):
    """What this machine's clocks say."""

    wall_ms: int
    boot: str  # identifies the boot whose ticks these are
    ticks_s: float


class ClockStart(NamedTuple):
    ms: int  # where the clock begins
    step_s: int = 0  # by how much the system's clock was changed: all stored times move with it
    away_s: int = 0  # how long no Kaiwo ran, as far as the clocks say


def start_of(stored_ms: str, stored_boot: str, is_wall_time: bool, now: SystemTime) -> ClockStart:
    """Where the clock begins. Virtual time goes on where it stopped; wall time follows the system's clock.

    `stored_boot`: what `describe_boot` wrote at the last start. In the same boot the ticks say how much time has really
    passed, and what the system's clock says beyond that is a step. After a reboot nobody knows: a later time counts as
    time that has passed, an earlier one as a step.
    """
    if not stored_ms:
        return ClockStart(now.wall_ms)
    last_ms = int(stored_ms)
    if not is_wall_time or not is_plausible(now.wall_ms):
        return ClockStart(last_ms)
    boot, _, offset = stored_boot.partition(" ")
    is_same_boot = boot == now.boot and offset.lstrip("-").isdecimal()
    expected_ms = int(offset) + int(now.ticks_s * 1000) if is_same_boot else last_ms
    step_ms = now.wall_ms - expected_ms
    if step_ms > 0 and not is_same_boot:
        return ClockStart(now.wall_ms, away_s=step_ms // 1000)
    if abs(step_ms) < STEP_S * 1000:
        return ClockStart(max(last_ms, now.wall_ms))
    return ClockStart(now.wall_ms, step_s=step_ms // 1000)


def is_plausible(wall_ms: int) -> bool:
    """False for a clock that was never set: such machines begin in 1970, or when their hardware was made."""
    return wall_ms >= PLAUSIBLE_S * 1000


def describe_boot(start: ClockStart, now: SystemTime) -> str:
    """Relates the clock to the ticks of this boot, for the next start."""
    return f"{now.boot} {start.ms - int(now.ticks_s * 1000)}"
