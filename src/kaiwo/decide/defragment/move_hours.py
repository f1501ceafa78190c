"""When moves may begin: at any time, or within the hours of the day that the policy names, in UTC."""

from kaiwo.model.policy import hours_of_day

DAY_S = 86_400


def next_open_s(hours: tuple[str, ...], now_s: int) -> int:
    """`now_s` itself within the hours; else when the next of them begin."""
    at_s = now_s % DAY_S
    waits = [_wait_s(*hours_of_day(text), at_s) for text in hours]
    return now_s + min(waits, default=0)


def _wait_s(from_s: int, until_s: int, at_s: int) -> int:
    is_open = from_s <= at_s < until_s if from_s < until_s else at_s >= from_s or at_s < until_s
    return 0 if is_open else (from_s - at_s) % DAY_S
