"""Past use fades by half every half-life, and bends the weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.queues.past_usage import WHOLE_PART, PastUsage, adjust_weights, advance, decay_factor

DAY_S = 86_400
TOTALS = np.array([8_000, 96_000, 1_024])
HALF = np.array([[4_000, 48_000, 512]])
NOTHING = np.zeros((1, 3), np.int64)
NO_USAGE = PastUsage(NOTHING)


def test_after_a_half_life_half_of_it_counts() -> None:
    used = advance(NO_USAGE, HALF, TOTALS, elapsed_s=100 * DAY_S, half_life_s=DAY_S)
    assert (used.parts == WHOLE_PART // 2).all()
    assert (advance(used, NOTHING, TOTALS, DAY_S, DAY_S).parts == WHOLE_PART // 4).all()
    assert (advance(used, NOTHING, TOTALS, 2 * DAY_S, DAY_S).parts == WHOLE_PART // 8).all()


def test_small_steps_of_a_long_half_life_do_not_vanish() -> None:
    used = NO_USAGE
    for _ in range(1_000):
        used = advance(used, HALF, TOTALS, elapsed_s=1, half_life_s=7 * DAY_S)
    at_once = advance(NO_USAGE, HALF, TOTALS, elapsed_s=1_000, half_life_s=7 * DAY_S)
    assert np.abs(used.part - at_once.part).max() < 10_000  # of 2**40
    assert at_once.parts[0, 0] == pytest.approx(0.5 * (1 - 2 ** (-1_000 / (7 * DAY_S))) * WHOLE_PART, abs=1)


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 10**7))
def test_two_waits_are_one_long_wait(first: int, second: int, half_life: int) -> None:
    together = decay_factor(first, half_life) * decay_factor(second, half_life) >> 60
    assert together == pytest.approx(decay_factor(first + second, half_life), rel=1e-9, abs=2)


@given(st.integers(0, 10**8), st.integers(1, 10**7))
def test_the_decay_is_a_power_of_two(elapsed: int, half_life: int) -> None:
    assert decay_factor(elapsed, half_life) / (1 << 60) == pytest.approx(
        2 ** (-elapsed / half_life), rel=1e-9, abs=1e-17
    )


def test_the_past_can_be_forgotten_at_once() -> None:
    assert decay_factor(5, 0) == (1 << 60) >> 5
    assert decay_factor(10**9, 1) == 0


def test_whoever_used_its_part_keeps_its_weight() -> None:
    group = np.zeros(3, np.intp)
    bent = adjust_weights(
        group, np.array([1, 1, 2]), np.array([WHOLE_PART // 4, WHOLE_PART // 4, WHOLE_PART // 2]), 2_000
    )
    assert bent[0] == bent[1]
    assert bent[2] == pytest.approx(2 * bent[0], abs=2)


def test_without_strength_the_past_does_not_count() -> None:
    group = np.zeros(2, np.intp)
    assert adjust_weights(group, np.array([3, 1]), np.array([WHOLE_PART, 0]), 0).tolist() == [3, 1]


def test_a_queue_that_used_far_too_much_weighs_nothing_for_now() -> None:
    group = np.array([0, 0, 1])
    bent = adjust_weights(group, np.array([1, 1, 1]), np.array([WHOLE_PART, 0, WHOLE_PART]), 1_000)
    assert bent[0] == 0
    assert bent[1] > 0
    assert bent[2] > 0  # alone in its group: its weight's part is everything


def test_a_resource_of_one_unit_is_used_wholly_or_not_at_all() -> None:
    totals, used = np.array([1, 1, 0]), np.array([[1, 0, 0]])
    after = advance(PastUsage(np.zeros((1, 3), np.int64)), used, totals, elapsed_s=10**9, half_life_s=1)
    assert after.part.tolist() == [[WHOLE_PART * WHOLE_PART, 0, 0]]
