"""The waiting workloads of a class stay in order as they are added and removed."""

import gc
import random

import pytest

from kaiwo.snapshot.backlog import OrderedWaiters, Queued


def test_a_line_equals_a_sorted_list_through_any_history() -> None:
    draw = random.Random(5)
    line, names = OrderedWaiters(), []
    for number in range(3_000):
        if names and draw.random() < 0.6:
            place = names.pop(0 if draw.random() < 0.8 else draw.randrange(len(names)))
            line.remove(place)
        else:
            place = (((draw.randrange(50),),), f"w{number}")
            names.append(place)
            names.sort()
            line.add(place)
        assert len(line) == len(names)
        if number % 50 == 0:
            assert list(line) == names
            assert list(line.copy()) == names
            assert all(line.at(line.ahead_of(place)) == place for place in names[:5])


def test_leaving_at_the_head_a_thousand_times_loses_nobody() -> None:
    line = OrderedWaiters()
    places = [(((number,),), f"w{number}") for number in range(1_000)]
    for place in places:
        line.add(place)
    for number, place in enumerate(places):
        assert line.at(0) == place
        line.remove(place)
        assert len(line) == 999 - number


@pytest.mark.parametrize(
    ("waited", "gone", "remembered"), [(120, 64, 120), (120, 65, 55), (131, 65, 131), (130, 66, 64)]
)
def test_those_who_left_at_the_head_are_forgotten_once_they_are_many_and_half_of_all(
    waited: int, gone: int, remembered: int
) -> None:
    line = OrderedWaiters()
    places = [(((number,),), f"w{number}") for number in range(waited)]
    for place in places:
        line.add(place)
    for place in places[:gone]:
        line.remove(place)
    assert list(line) == places[gone:]
    assert len(line._positions) == remembered


def test_who_comes_back_before_all_others_stands_before_them() -> None:
    line = OrderedWaiters()
    places = [(((number,),), f"w{number}") for number in range(3)]
    for place in places:
        line.add(place)
    line.remove(places[0])
    assert (line.ahead_of(places[1]), line.ahead_of(places[2])) == (0, 1)
    line.add(places[0])
    assert list(line) == list(line.copy()) == places


def test_the_garbage_collector_does_not_visit_queued_work() -> None:
    """There may be 100,000 of it, and every full collection would take 25 ms longer."""
    assert not gc.is_tracked(Queued(5, "w", (((1,),), "w"), ("queue", "digest")))
    assert Queued(5, "a", (((1,),), "a"), ("q", "d")) < Queued(5, "b", (((0,),), "b"), ("q", "d"))
