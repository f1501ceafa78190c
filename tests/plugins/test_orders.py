"""The orders that come with Kaiwo."""

import numpy as np
from hypothesis import given

from kaiwo.model.event import Event
from kaiwo.plugins.builtin.orders import PoorestQueue, QueuePriority
from kaiwo.snapshot.working import Working
from tests.properties.strategies import states
from tests.properties.test_laws import world_of


@given(states())
def test_the_quick_answer_for_one_queue_is_the_answer(events: list[Event]) -> None:
    world = world_of(events)
    world.settle()
    view = Working(world.snapshot())
    rows = np.arange(len(view.queues.names))
    for order in (PoorestQueue(), QueuePriority()):
        assert [order.queue_order_of(view, row) for row in rows] == order.queue_order(view, rows).tolist()
