"""Forecast the mean demand of the coming hours, from samples of the demand so far, by hour and weekday.

In:    one sample at a time, such as the GPUs that work holds and waits for.   Out: the expected demand, hour by hour.
Never: uses floating point. Demand is counted in thousandths inside, and in whole units outside.

There are several ways to forecast: the latest demand or a smoothed one, with or without what the hour and the weekday
usually change, drawn to the usual level or not. Each is compared with what happened. The forecast is the median of
those that are nearly as good as the best: where demand moves in steps, that is the latest demand alone.
"""

from typing import NamedTuple

import msgspec

HOUR_S, SLOT_S = 3600, 600
SLOTS = HOUR_S // SLOT_S
HOURS_A_DAY, DAYS = 24, 7
MAX_HOURS = 24  # how far ahead
MILLI = 1000
WINDOWS = (0, 1, 2, 4, 12)  # over how many slots the demand is smoothed; 0: the last sample
CHANGES_MILLI = (0, 250, 500, 800)  # how much of the usual change of the hour and weekday is expected
DRAWS_MILLI = (0, 40, 100)  # how far the demand is drawn to the usual level
ERROR_WHOLE = 1 << 30
LOSS_HOURS = 290  # an error counts for about this many hours
FEWEST_COMPARED = 12  # hours before the usual error is known
MOST_WAYS = 5  # the forecast is the median of at most this many ways
NEARLY_MILLI = 1020  # whose errors are at most so much larger than the smallest
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
    slot_last: int = 0  # its last sample
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
        losses = [[0] * len(WAYS) for _ in range(MAX_HOURS)]
        if saved is None or [len(each) for each in saved.losses] != [len(each) for each in losses]:  # another version's
            saved = SavedDemand(hours=[0] * HOURS_A_DAY, days=[0] * DAYS, losses=losses)
        self._state = saved

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
        state.slot_samples, state.slot_last = state.slot_samples + 1, demand * MILLI

    def expect(self, ahead: int) -> int | None:
        """The mean demand of an hour: 1 is the next whole hour after the last one that has ended. None: unknown."""
        if not 1 <= ahead <= MAX_HOURS or not self._state.hours_seen:
            return None
        hour = self._state.slot // SLOTS - 1
        expected = sorted(self._expected(way, hour, ahead) for way in self._best(ahead))
        return (expected[len(expected) // 2] + MILLI // 2) // MILLI

    @property
    def hours_seen(self) -> int:
        return self._state.hours_seen

    def high(self, ahead: int) -> int | None:
        """What the demand of that hour seldom exceeds: the forecast with twice its usual error. None: unknown."""
        expected, state = self.expect(ahead), self._state
        compared = min(state.hours_seen - ahead, LOSS_HOURS)
        if expected is None or compared < FEWEST_COMPARED:
            return None
        part = min(2 * min(state.losses[ahead - 1]) // compared, ERROR_WHOLE * 9 // 10)
        # An error is a part of both demands and the usual one: see `_compare`.
        above = part * (2 * expected * MILLI + state.usual) // (ERROR_WHOLE - part)
        return expected - (-above // MILLI)

    def _end_slot(self) -> None:
        state = self._state
        demand = state.slot_sum // state.slot_samples if state.slot_samples else state.levels[0]
        last = state.slot_last if state.slot_samples else demand
        state.levels = [
            level + (demand - level) * 2 // (window + 1) if window else last
            for level, window in zip(state.levels, WINDOWS, strict=True)
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
                # Relative to the usual demand, too: where demand is near zero, a small error is not a large one.
                size = expected + demand + self._state.usual
                error = abs(expected - demand) * ERROR_WHOLE // max(1, size)
                losses[number] += error - losses[number] // LOSS_HOURS

    def _best(self, ahead: int) -> list[Way]:
        """The ways with the smallest errors so far; of equal ones the simpler."""
        losses = self._state.losses[ahead - 1]
        numbers = sorted(range(len(WAYS)), key=losses.__getitem__)[:MOST_WAYS]
        return [WAYS[number] for number in numbers if losses[number] * MILLI <= losses[numbers[0]] * NEARLY_MILLI]

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
