"""What orders learn from the jobs that have ended."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.errors import ConfigError
from kaiwo.model.request import Request
from kaiwo.simulate.engine.ending_odds import LEVELS, EndingOdds, age_level, gittins_index, level_ends_s
from kaiwo.simulate.engine.job import SimulatedJob
from kaiwo.simulate.engine.service_orders import REFRESH_S, octave_level, service_order


def job(group: str, runs_s: int, gpus: int = 1) -> SimulatedJob:
    return SimulatedJob(f"{group}-job", 0, runs_s, Request(gpus=gpus), group=group)


@given(st.integers(1, 1 << 50))
def test_an_octave_level_is_the_logarithm_in_sixteenths(amount: int) -> None:
    assert abs(octave_level(amount) - math.floor(16 * math.log2(amount))) <= 1


@given(st.integers(1, 1 << 50), st.integers(0, 1 << 50))
def test_more_is_never_a_lower_level(amount: int, more: int) -> None:
    assert octave_level(amount + more) >= octave_level(amount)


@given(st.integers(0, 10**9))
def test_an_age_is_within_its_level(age_s: int) -> None:
    level = age_level(age_s)
    assert age_s < level_ends_s(level) or level == LEVELS - 1
    assert level == 0 or age_s >= level_ends_s(level - 1)


def test_before_anything_has_ended_less_service_comes_first() -> None:
    odds = EndingOdds()
    priorities = [odds.priority(1000, level) for level in range(LEVELS)]
    assert priorities == sorted(priorities, reverse=True)
    assert len(set(priorities)) > LEVELS // 2


def test_of_equal_ages_the_smaller_job_comes_first() -> None:
    odds = EndingOdds()
    assert odds.priority(1000, 5) > odds.priority(8000, 5)


def test_an_age_at_which_jobs_end_comes_before_a_younger_one_at_which_they_do_not() -> None:
    odds = EndingOdds()
    for _ in range(300):
        odds.ended(1000, 10)
    odds.learn([])
    assert odds.priority(1000, 9) > odds.priority(1000, 4)


def test_jobs_that_have_not_ended_count_too() -> None:
    few, many = EndingOdds(), EndingOdds()
    for odds, still_running in ((few, 0), (many, 500)):
        for _ in range(20):
            odds.ended(1000, 3)
        odds.learn([(1000, 8)] * still_running)
    assert many.priority(1000, 2) < few.priority(1000, 2)


def test_the_index_of_odds_that_never_change_is_the_best_rate_from_there() -> None:
    odds = np.array([0.5, 0.1, 0.9])
    index = gittins_index(odds)
    assert index[0] == pytest.approx(0.5 / (60 * 0.75))  # going on only makes it worse
    far = (0.1 + 0.9 * 0.9) / (60 * 0.95 + 0.9 * 120 * 0.55)
    assert index[1] == pytest.approx(max(far, 0.1 / (60 * 0.95)))  # worth serving for what comes after


def test_the_group_mean_knows_only_what_has_ended() -> None:
    order = service_order("group-mean")
    assert order.priority(job("a", 5), 0, 5) == order.priority(job("b", 50_000), 0, 50_000) == 0
    order.ended(job("a", 100), 100)
    order.ended(job("b", 10_000), 10_000)
    assert order.priority(job("a", 9), 0, 9) > order.priority(job("b", 9), 0, 9)
    unknown = order.priority(job("c", 9), 0, 9)
    assert order.priority(job("a", 9), 0, 9) > unknown > order.priority(job("b", 9), 0, 9)


@pytest.mark.parametrize("name", ["learned", "group-mean"])
def test_priorities_change_at_most_once_a_minute(name: str) -> None:
    order = service_order(name)
    order.changed_groups(10_000, list)
    order.ended(job("a", 100), 10_001)
    assert order.changed_groups(10_000 + REFRESH_S - 1, list) == frozenset()
    assert order.changed_groups(10_000 + REFRESH_S, list) == {"a"}


def test_the_learned_order_uses_the_shipped_forecast() -> None:
    order = service_order("learned")
    for number in range(20):
        order.ended(job("a", 60), 1_000 + number)
        order.ended(job("b", 30_000), 40_000 + number)
    order.changed_groups(50_000, list)
    assert order.priority(job("a", 1), 0, 1) > order.priority(job("b", 1), 0, 1)


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="there is no order 'lifo'; choose one of: fifo, least"):
        service_order("lifo")
