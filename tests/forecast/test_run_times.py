"""Forecasts of run times: what they rest on, that the unknown stays unknown, and that memory has a bound."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.forecast import run_time_forecast
from kaiwo.forecast.duration_buckets import BUCKETS, EDGES, bucket_of, mean_s, quantile_beyond_s, quantile_s
from kaiwo.forecast.run_time_forecast import (
    DAY_S,
    WHOLE,
    RunKey,
    RunTimeForecast,
    RunTimeRange,
    SavedForecast,
    remaining,
)

KEY = RunKey("ada", "train", "lab", "torch", 8000)
ANONYMOUS = RunKey("", "", "lab", "", 8000)


def taught(*runs: tuple[RunKey, int], every_s: int = 600) -> RunTimeForecast:
    forecast = RunTimeForecast()
    for number, (key, run_s) in enumerate(runs):
        forecast.learn(key, run_s, number * every_s)
    return forecast


def expect(forecast: RunTimeForecast, key: RunKey = KEY, now_s: int = 20_000) -> RunTimeRange:
    found = forecast.expect(key, now_s)
    assert found is not None
    return found


@given(st.integers(1, 1 << 26))
def test_a_duration_is_in_its_bucket(run_s: int) -> None:
    bucket = bucket_of(run_s)
    assert EDGES[bucket] <= run_s
    assert run_s < EDGES[bucket + 1] or bucket == BUCKETS - 1


def test_a_quantile_grows_evenly_inside_a_bucket() -> None:
    counts = np.zeros(BUCKETS, np.int64)
    counts[bucket_of(1024)] = 100
    low, high = EDGES[40], EDGES[41]
    assert quantile_s(counts, 0) == low
    assert quantile_s(counts, 500_000) == low + (high - low) // 2
    assert quantile_s(counts, 1_000_000) == high
    assert quantile_s(np.zeros(BUCKETS, np.int64), 500_000) == mean_s(np.zeros(BUCKETS, np.int64)) == 0


def test_what_has_run_for_a_part_of_its_bucket_ends_in_the_rest_of_it() -> None:
    """It does not end at once, and the more of the bucket is over, the less of it counts."""
    counts = np.zeros(BUCKETS, np.int64)
    bucket = bucket_of(36_000)
    counts[bucket] = counts[bucket + 1] = 1_000
    low, high = EDGES[bucket], EDGES[bucket + 1]
    middle = (low + high) // 2
    assert quantile_beyond_s(counts, middle, 1) >= middle
    assert quantile_beyond_s(counts, middle, 1_000_000) == EDGES[bucket + 2]
    # A third of what is left is the second half of the bucket: a sixth of all is the middle of that half.
    assert abs(quantile_beyond_s(counts, middle, 166_667) - (middle + high) // 2) < 10
    assert abs(quantile_beyond_s(counts, middle, 333_334) - high) < 10
    assert quantile_beyond_s(counts, EDGES[bucket + 2], 500_000) == 0


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(1, 10**6), st.integers(1, 999_999))
def test_what_runs_never_ends_before_now(runs: list[int], elapsed_s: int, part_ppm: int) -> None:
    counts = np.zeros(BUCKETS, np.int64)
    for run_s in runs:
        counts[bucket_of(run_s)] += 256
    found = quantile_beyond_s(counts, elapsed_s, part_ppm)
    assert found == 0 or found >= elapsed_s
    assert found >= quantile_beyond_s(counts, elapsed_s, part_ppm // 2)


def test_two_runs_say_nothing_and_three_do() -> None:
    assert taught((KEY, 60), (KEY, 60)).expect(KEY, 2000) is None
    found = expect(taught((KEY, 60), (KEY, 60), (KEY, 60)))
    assert found.low_s <= 60 <= found.high_s
    assert (found.runs, found.basis) == (3, "user, name, queue, image, size")


def test_the_runs_of_another_queue_say_nothing() -> None:
    forecast = taught(*[(KEY, 60)] * 20)
    assert forecast.expect(RunKey("bob", "eval", "other", "jax", 8000), 20_000) is None
    assert forecast.expect(KEY._replace(queue="other", user="bob"), 20_000) is None


def test_the_most_specific_group_with_enough_runs_is_the_basis() -> None:
    forecast = taught(*[(KEY, 60)] * 3, *[(KEY._replace(name="eval"), 60)] * 2)
    assert expect(forecast, KEY._replace(name="eval")).basis == "user, queue, size"
    assert expect(forecast, KEY._replace(user="bob", name="eval")).basis == "queue, image, size"
    assert expect(forecast, ANONYMOUS) == expect(forecast, ANONYMOUS)
    assert (expect(forecast, ANONYMOUS).basis, expect(forecast, ANONYMOUS).runs) == ("queue, size", 5)


@pytest.mark.parametrize("field", ["user", "name", "image"])
def test_each_field_alone_tells_runs_apart(field: str) -> None:
    other = KEY._replace(**{field: "another"})
    forecast = taught(*[(KEY, 100), (other, 10_000)] * 20)
    assert expect(forecast, KEY).middle_s * 10 < expect(forecast, other).middle_s


def test_a_size_is_told_apart_from_another() -> None:
    forecast = taught(*[(ANONYMOUS, 100), (ANONYMOUS._replace(size=1000), 10_000)] * 20)
    assert expect(forecast, ANONYMOUS).middle_s * 10 < expect(forecast, ANONYMOUS._replace(size=1000)).middle_s


def test_what_started_lately_counts_more() -> None:
    forecast = taught(*[(ANONYMOUS, 100)] * 60, *[(ANONYMOUS, 10_000)] * 20)
    assert expect(forecast, ANONYMOUS, 80 * 600).middle_s > 5_000


def test_the_longest_of_a_batch_ends_last_and_does_not_stand_for_all() -> None:
    forecast = RunTimeForecast()
    for run_s in (*[100] * 50, *[200_000] * 3):  # all started together
        forecast.learn(ANONYMOUS, run_s, 0)
    assert expect(forecast, ANONYMOUS, 200_000).middle_s < 1_000


def test_the_rank_has_a_value_where_the_run_time_is_unknown() -> None:
    forecast = taught((KEY, 64))
    assert forecast.expect(KEY, 600) is None
    assert forecast.rank_s(KEY, 600) > 0
    assert RunTimeForecast().rank_s(KEY, 0) == 0


def test_a_run_counts_half_after_a_half_life() -> None:
    assert remaining(0, DAY_S) == WHOLE
    assert remaining(DAY_S, DAY_S) == WHOLE // 2
    assert remaining(3 * DAY_S, DAY_S) == WHOLE // 8
    assert remaining(100 * DAY_S, DAY_S) == 0


def test_the_state_survives_a_restart() -> None:
    forecast = taught(*[(KEY, 60 + number) for number in range(30)])
    saved = msgspec.json.decode(msgspec.json.encode(forecast.save()), type=SavedForecast)
    again = RunTimeForecast(saved)
    assert again.expect(KEY, 20_000) == forecast.expect(KEY, 20_000)
    again.learn(KEY, 500, 20_000)
    forecast.learn(KEY, 500, 20_000)
    assert again.save() == forecast.save()


def test_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_time_forecast, "MAX_GROUPS", 50)
    monkeypatch.setattr(run_time_forecast, "MAX_TRUSTS", 5)
    forecast = taught(*[(KEY._replace(user=f"u{number}", queue=f"q{number}"), 60) for number in range(40)])
    saved = forecast.save()
    assert len(saved.groups) == 50
    assert [each.queue for each in saved.trust] == [f"q{number}" for number in range(35, 40)]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 10**7)), min_size=3, max_size=40))
def test_a_range_is_in_order_and_every_weight_counts(runs: list[tuple[str, int]]) -> None:
    forecast = taught(*[(KEY._replace(user=user), run_s) for user, run_s in runs])
    found = forecast.expect(KEY._replace(user=runs[0][0]), 50_000)
    assert found is None or 1 <= found.low_s <= found.middle_s <= found.high_s <= EDGES[BUCKETS]
    assert all(min(each.weights) >= 1 for each in forecast.save().trust)
