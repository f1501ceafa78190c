"""A line keeps its order, whoever joins and leaves."""

import random

from kaiwo.snapshot.backlog import OrderedWaiters


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
