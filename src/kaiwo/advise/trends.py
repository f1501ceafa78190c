"""Whether a measure rises or falls: this week against the one before, and when it would reach a bound.

In:    one value for each hour, None where nobody knows.   Out: a Trend, or None while too little is known.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

WEEK_H = 168
FEWEST_H = 24  # of each of the two spans that are compared
FLAT_PERCENT = 5  # a smaller change is none
DAY_H = 24


class Trend(msgspec.Struct, frozen=True):
    now: int  # mean of the last span
    before: int  # mean of the span before
    span_h: int  # how many hours each has
    per_day: int  # how much a day adds, by the line that fits best
    full_in_days: int | None = None  # until the bound, if it goes on like this; None: it does not rise, or has none

    @property
    def is_flat(self) -> bool:
        return abs(self.now - self.before) * 100 <= max(self.now, self.before) * FLAT_PERCENT


def trend_of(values: Sequence[int | None], bound: int | None = None) -> Trend | None:
    """A week and the week before; with less history, its two halves, of whole days where there are any."""
    known = [at for at, value in enumerate(values) if value is not None]
    if not known:
        return None
    history = values[known[0] :]
    span_h = min(WEEK_H, len(history) // 2)
    span_h -= span_h % DAY_H if span_h >= DAY_H else 0  # a day has nights
    old = [value for value in history[-2 * span_h : -span_h] if value is not None] if span_h else []
    new = [value for value in history[-span_h:] if value is not None] if span_h else []
    if min(len(old), len(new)) < FEWEST_H:
        return None
    now, before = sum(new) // len(new), sum(old) // len(old)
    span = history[-2 * span_h :]
    at = np.array([hour for hour, value in enumerate(span) if value is not None], np.float64)
    fitted = np.polyfit(at, np.array([value for value in span if value is not None], np.float64), 1)
    per_day = round(float(fitted[0]) * DAY_H)
    trend = Trend(now, before, span_h, per_day)
    if bound is None or per_day <= 0 or trend.is_flat:
        return trend
    return msgspec.structs.replace(trend, full_in_days=max(0, -(-(bound - now) // per_day)))
