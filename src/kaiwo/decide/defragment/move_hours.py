"""When moves may begin: within the hours of the day that the policy names, in UTC, and at most so many an hour."""

from collections.abc import Iterable

from kaiwo.model.policy import hours_of_day

HOUR_S, DAY_S = 3600, 86_400


def next_open_s(hours: tuple[str, ...], now_s: int) -> int:
    """`now_s` itself within the hours; else when the next of them begin."""
    at_s = now_s % DAY_S
    waits = [_wait_s(*hours_of_day(text), at_s) for text in hours]
    return now_s + min(waits, default=0)


def begun_lately(begun_s: Iterable[int], now_s: int) -> list[int]:
    """When moves were begun within the last hour, the first one first."""
    return sorted(at_s for at_s in begun_s if at_s > now_s - HOUR_S)


def rate_allows_s(lately_s: list[int], per_hour: int, now_s: int) -> int:
    """`now_s` itself while fewer moves were begun within the hour; else when the next one may begin."""
    return now_s if len(lately_s) < per_hour else lately_s[-per_hour] + HOUR_S


def _wait_s(from_s: int, until_s: int, at_s: int) -> int:
    is_open = from_s <= at_s < until_s if from_s < until_s else at_s >= from_s or at_s < until_s
    return 0 if is_open else (from_s - at_s) % DAY_S
