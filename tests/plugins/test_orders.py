"""The built-in orders."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.events import Event
from kaiwo.plugins.builtin.orders import FairShare
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.properties.strategies import states
from tests.properties.test_laws import world_of


@given(states(), st.data())
def test_the_quick_answer_for_one_queue_is_the_answer(events: list[Event], data: st.DataObject) -> None:
    world = world_of(events)
    world.settle()
    view = WorkingCopy(world.snapshot()).view
    rows = np.arange(len(view.queues.names))
    amounts = st.tuples(st.integers(0, 9_000), st.integers(0, 9_000), st.integers(0, 9_000))
    need = [data.draw(amounts) for _ in rows]
    since_s = [data.draw(st.integers(0, 9)) for _ in rows]
    order = FairShare()
    quick = [order.queue_order_of(view, row, need[row], since_s[row]) for row in rows]
    together = order.queue_order(view, rows, np.array(need).reshape(-1, 3), np.array(since_s, np.int64))
    assert [list(keys) for keys in quick] == together.tolist()
