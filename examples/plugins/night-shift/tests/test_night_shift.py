import numpy as np
import pytest
from night_shift import Config, NightShift

from kaiwo.plugins import Queue
from kaiwo.plugins.testing import all_queues, view_of


def order(hour: int, config: Config) -> list[int]:
    view = view_of([], [Queue("batch"), Queue("lab")], now_s=hour * 3_600)
    rows = all_queues(view)
    return NightShift(config).queue_order(view, rows, np.zeros((2, 3), np.int64), np.zeros(2, np.int64)).tolist()


@pytest.mark.parametrize(("hour", "expected"), [(19, [1, 1]), (20, [0, 1]), (23, [0, 1]), (5, [0, 1]), (6, [1, 1])])
def test_the_night_shift_comes_first_at_night(hour: int, expected: list[int]) -> None:
    assert order(hour, Config(queues=("batch",))) == expected


def test_a_night_within_one_day() -> None:
    config = Config(queues=("lab",), begins_at=1, ends_at=4)
    assert [order(hour, config) for hour in (0, 1, 4)] == [[1, 1], [1, 0], [1, 1]]
