"""The clock never goes backwards."""

from kaiwo.clusters.local.clock import Clock, ClockStart, SystemTime, start_of

NOW = SystemTime(1_800_000_000_000, "boot", 100.0)


class Ticks:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_speed_scales_time() -> None:
    ticks = Ticks()
    clock = Clock(1_000_000, 60.0, ticks)
    clock.set_limit(clock.next_limit_ms())
    ticks.at += 2.0
    assert clock.now_s() == 1120
    assert clock.real_s_until(1180) == 1.0
    assert clock.real_s_until(1000) == 0.0


def test_no_time_is_shown_that_was_not_kept() -> None:
    ticks = Ticks()
    clock = Clock(1_000_000, 10.0, ticks)
    assert clock.now_ms() == 1_000_000
    ticks.at += 1
    assert clock.now_ms() == 1_000_000  # nothing was promised yet
    kept_ms = clock.next_limit_ms()
    clock.set_limit(kept_ms)
    assert clock.now_ms() == 1_010_000
    ticks.at += 3600
    assert clock.now_ms() == kept_ms
    again = Clock(start_of(str(kept_ms), "", False, NOW).ms, 10.0, ticks)
    assert again.now_ms() >= clock.now_ms()


def test_virtual_time_stands_still_while_kaiwo_is_down_and_wall_time_does_not() -> None:
    assert start_of("5000", "", False, NOW) == ClockStart(5000)
    assert start_of("5000", "", True, NOW).ms == NOW.wall_ms
    assert start_of("", "", False, NOW).ms == NOW.wall_ms
