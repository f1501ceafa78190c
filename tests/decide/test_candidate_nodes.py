"""Where to look for victims: the nodes on which the fewest of them, in their order, must stop."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.decide.make_room.candidate_nodes import _last_victim

NODES = 4
NEVER, NOBODY = 1 << 60, -1
pods = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, NODES - 1), st.sampled_from([250, 500, 1_000])), max_size=12
)


def last_victim(need: int, free: int, here: list[tuple[int, int]]) -> int:
    """Stop one unit after the other until there is enough."""
    if free >= need:
        return NOBODY
    for unit, milli in here:
        free += milli
        if free >= need:
            return unit
    return NEVER


@settings(max_examples=60)  # each is quick
@given(pods, st.lists(st.sampled_from([0, 500, 1_000]), min_size=NODES, max_size=NODES), st.sampled_from([500, 1_500]))
def test_the_last_unit_that_must_stop_on_each_node(
    running: list[tuple[int, int, int]], free: list[int], need: int
) -> None:
    unit, row, milli = np.array(running, np.int64).reshape(-1, 3).T
    found = _last_victim(need, np.array(free), unit, row, milli)
    assert found.tolist() == [
        last_victim(need, free[node], sorted((unit, milli) for unit, on, milli in running if on == node))
        for node in range(NODES)
    ]
