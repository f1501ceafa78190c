"""Forecasts of demand: the unknown stays unknown, days repeat themselves, and a pause does no harm."""

import msgspec
import pytest

from kaiwo.forecast.demand_forecast import HOUR_S, MAX_HOURS, SLOT_S, DemandForecast, SavedDemand

DAY_S = 24 * HOUR_S


def observed(hours: int, demand: object, forecast: DemandForecast | None = None, begin_s: int = 0) -> DemandForecast:
    forecast = forecast or DemandForecast()
    assert callable(demand)
    for at_s in range(begin_s, begin_s + hours * HOUR_S + 1, SLOT_S):
        forecast.observe(at_s, demand(at_s))
    return forecast


def day_and_night(at_s: int) -> int:
    return 100 if 8 <= at_s % DAY_S // HOUR_S < 18 else 20


def test_nothing_is_expected_before_the_first_hour_has_ended() -> None:
    forecast = DemandForecast()
    assert forecast.expect(1) is None
    forecast.observe(0, 5)
    assert forecast.expect(1) is None


def test_constant_demand_stays() -> None:
    forecast = observed(30, lambda _: 7)
    assert {forecast.expect(ahead) for ahead in range(1, MAX_HOURS + 1)} == {7}
    assert forecast.expect(0) is None
    assert forecast.expect(MAX_HOURS + 1) is None


def test_no_demand_is_none_at_all() -> None:
    assert observed(30, lambda _: 0).expect(3) == 0


def test_days_repeat_themselves() -> None:
    forecast = observed(14 * 24 + 6, day_and_night)  # it is six in the morning
    in_three_hours = forecast.expect(4)
    assert in_three_hours is not None
    assert in_three_hours > 60, "the working day will have begun"


def test_a_sample_every_minute_is_the_same_as_their_mean() -> None:
    often, seldom = DemandForecast(), DemandForecast()
    for at_s in range(0, 5 * HOUR_S + 1, 60):
        often.observe(at_s, 10 + (at_s // 60) % 2 * 2)
    for at_s in range(0, 5 * HOUR_S + 1, SLOT_S):
        seldom.observe(at_s, 11)
    assert often.expect(1) == seldom.expect(1) == 11


@pytest.mark.parametrize("pause_s", [3 * HOUR_S, 30 * DAY_S])
def test_after_a_pause_it_goes_on(pause_s: int) -> None:
    forecast = observed(48, lambda _: 10)
    forecast = observed(48, lambda _: 30, forecast, 48 * HOUR_S + pause_s)
    assert forecast.expect(1) == 30


def test_the_state_survives_a_restart() -> None:
    forecast = observed(72, day_and_night)
    again = DemandForecast(msgspec.json.decode(msgspec.json.encode(forecast.save()), type=SavedDemand))
    observed(10, day_and_night, forecast, 73 * HOUR_S)
    observed(10, day_and_night, again, 73 * HOUR_S)
    assert again.save() == forecast.save()
    assert len(msgspec.json.encode(again.save())) < 200_000
