"""Forecast the mean demand of the coming hours, from samples of the demand so far, by hour and weekday.

In:    one sample at a time, such as the GPUs that work holds and waits for.   Out: the expected demand, hour by hour.
Never: uses floating point. Demand is counted in thousandths inside, and in whole units outside.

There are several ways to forecast: the latest demand or a smoothed one, with or without what the hour and the weekday
usually change, drawn to the usual level or not. Each is compared with what happened, and the forecast is the
median of the five with the smallest errors.
"""

from typing import NamedTuple

import msgspec

HOUR_S, SLOT_S = 3600, 600
SLOTS = HOUR_S // SLOT_S
HOURS_A_DAY, DAYS = 24, 7
MAX_HOURS = 24  # how far ahead
MILLI = 1000
WINDOWS = (1, 2, 4, 12)  # over how many slots the demand is smoothed
CHANGES_MILLI = (0, 250, 500, 800)  # how much of the usual change of the hour and weekday is expected
DRAWS_MILLI = (0, 40, 100)  # how far the demand is drawn to the usual level
ERROR_WHOLE = 1 << 30
LOSS_HOURS = 290  # an error counts for about this many hours
BEST = 5  # the forecast is the median of this many ways
USUAL_HOURS = 72  # over which the usual level is taken
PROFILE_PART = 6  # a new hour changes its profile by one part in six


class Way(NamedTuple):
    window: int  # number in WINDOWS
    change_milli: int
    draw_milli: int


WAYS = tuple(
    Way(window, change, draw) for window in range(len(WINDOWS)) for change in CHANGES_MILLI for draw in DRAWS_MILLI
)


class _Pending(msgspec.Struct):
    """What each way expected of one hour, `ahead` hours before."""

    hour: int
    ahead: int
    expected: list[int]


class SavedDemand(msgspec.Struct):
    """The whole state."""

    slot: int = -1  # the slot of the last sample, by number since 1970
    slot_sum: int = 0
    slot_samples: int = 0
    hour_sum: int = 0
    hour_slots: int = 0
    levels: list[int] = []
    usual: int = 0
    hours: list[int] = []  # how much demand differs from the usual at each hour of the day
    days: list[int] = []  # and on each weekday
    hours_seen: int = 0
    losses: list[list[int]] = []  # by hours ahead, by way
    pending: list[_Pending] = []


class DemandForecast:
    def __init__(self, saved: SavedDemand | None = None) -> None:
        self._state = saved or SavedDemand(
            hours=[0] * HOURS_A_DAY, days=[0] * DAYS, losses=[[0] * len(WAYS) for _ in range(MAX_HOURS)]
        )

    def save(self) -> SavedDemand:
        return self._state

    def observe(self, at_s: int, demand: int) -> None:
        """A sample. Times ascend; a gap counts as the last demand going on."""
        state, slot = self._state, at_s // SLOT_S
        if state.slot < 0:
            state.slot, state.levels, state.usual = slot, [demand * MILLI] * len(WINDOWS), demand * MILLI
        if slot - state.slot > USUAL_HOURS * SLOTS:  # after a long pause only the profile is still worth something
            state.slot, state.slot_sum, state.slot_samples, state.hour_sum, state.hour_slots = slot, 0, 0, 0, 0
            state.pending.clear()
        while state.slot < slot:
            self._end_slot()
        state.slot_sum += demand * MILLI
        state.slot_samples += 1

    def expect(self, ahead: int) -> int | None:
        """The mean demand of an hour: 1 is the next whole hour after the last one that has ended. None: unknown."""
        if not 1 <= ahead <= MAX_HOURS or not self._state.hours_seen:
            return None
        hour = self._state.slot // SLOTS - 1
        expected = sorted(self._expected(way, hour, ahead) for way in self._best(ahead))
        return (expected[BEST // 2] + MILLI // 2) // MILLI

    def _end_slot(self) -> None:
        state = self._state
        demand = state.slot_sum // state.slot_samples if state.slot_samples else state.levels[0]
        state.levels = [
            level + (demand - level) * 2 // (window + 1) for level, window in zip(state.levels, WINDOWS, strict=True)
        ]
        state.slot_sum, state.slot_samples = 0, 0
        state.hour_sum, state.hour_slots = state.hour_sum + demand, state.hour_slots + 1
        state.slot += 1
        if state.slot % SLOTS == 0:
            self._end_hour(state.slot // SLOTS - 1, state.hour_sum // state.hour_slots)
            state.hour_sum, state.hour_slots = 0, 0

    def _end_hour(self, hour: int, demand: int) -> None:
        state = self._state
        self._compare(hour, demand)
        state.usual += (demand - state.usual) // USUAL_HOURS
        of_day, weekday = _calendar(hour)
        days_seen = state.hours_seen // HOURS_A_DAY + 1
        rest = demand - state.usual - state.hours[of_day] - state.days[weekday]
        state.hours[of_day] += rest // min(PROFILE_PART, days_seen + 1)
        state.days[weekday] += rest // (PROFILE_PART * HOURS_A_DAY)
        state.hours_seen += 1
        for ahead in range(1, MAX_HOURS + 1):
            expected = [self._expected(way, hour, ahead) for way in WAYS]
            state.pending.append(_Pending(hour + ahead, ahead, expected))

    def _compare(self, hour: int, demand: int) -> None:
        due = [each for each in self._state.pending if each.hour <= hour]
        self._state.pending = [each for each in self._state.pending if each.hour > hour]
        for each in due:
            losses = self._state.losses[each.ahead - 1]
            for number, expected in enumerate(each.expected):
                error = abs(expected - demand) * ERROR_WHOLE // max(1, expected + demand)
                losses[number] += error - losses[number] // LOSS_HOURS

    def _best(self, ahead: int) -> list[Way]:
        """The ways with the smallest errors so far; of equal ones the simpler."""
        losses = self._state.losses[ahead - 1]
        return [WAYS[number] for number in sorted(range(len(WAYS)), key=losses.__getitem__)[:BEST]]

    def _expected(self, way: Way, hour: int, ahead: int) -> int:
        state = self._state
        expected = state.levels[way.window]
        expected += (state.usual - expected) * way.draw_milli // MILLI
        if state.hours_seen > HOURS_A_DAY:
            expected += (self._usual_change(hour + ahead) - self._usual_change(hour)) * way.change_milli // MILLI
        return max(0, expected)

    def _usual_change(self, hour: int) -> int:
        of_day, weekday = _calendar(hour)
        return self._state.hours[of_day] + self._state.days[weekday]


def _calendar(hour: int) -> tuple[int, int]:
    """The hour of the day and the weekday of an hour since 1970, which began on a Thursday. UTC."""
    return hour % HOURS_A_DAY, (hour // HOURS_A_DAY + 3) % DAYS
