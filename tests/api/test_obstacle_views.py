"""An obstacle as the API shows it: its numbers are amounts that can be compared."""

import pytest

from kaiwo.api.presenters.workload_view import obstacle_view
from kaiwo.model.obstacle import Obstacle, Reason


@pytest.mark.parametrize("reason", [Reason.NOT_BEFORE, Reason.EXPIRED])
def test_a_time_of_the_clock_is_told_in_the_sentence_and_not_as_an_amount(reason: Reason) -> None:
    view = obstacle_view(Obstacle(reason, 1_794_779_186, 0, "s", "default/train"), "local")
    assert (view.need, view.have, view.unit) == (0, 0, "")
    assert "2026-11-15" in view.sentence


def test_amounts_are_told_as_they_are() -> None:
    view = obstacle_view(Obstacle(Reason.NOT_ENOUGH_FREE_GPUS, 4, 2, "gpus"), "local")
    assert (view.need, view.have, view.unit) == (4, 2, "gpus")
