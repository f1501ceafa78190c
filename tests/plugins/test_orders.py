"""The built-in orders."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.model.events import Event
from kaiwo.model.policy import Policy
from kaiwo.plugins.builtin import builtin_registry
from kaiwo.plugins.builtin.orders import FairShare
from kaiwo.snapshot.array_types import IntArray, Rows
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.properties.strategies import states
from tests.properties.test_laws import world_of
from tests.worlds import World


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


class LastByName:
    """Orders queues only many at a time."""

    name, version = "last-by-name", "1"

    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        return -queues.astype(np.int64)


def test_an_order_that_knows_no_single_queues_is_asked_for_many_of_one() -> None:
    registry = builtin_registry()
    registry.add(LastByName())
    policy = Policy(disabled_plugins=(FairShare.name,), actions=("allocate",))
    world = World(gpus_per_node=2, policy=policy, plugins=registry).queue("a").queue("b")
    for number in range(2):
        world.submit(f"a{number}", gpus_each=1, queue="a").submit(f"b{number}", gpus_each=1, queue="b")
    assert [plan.notes for plan in world.settle() if plan.notes] == []
    assert [world.is_running(name) for name in ("a0", "a1", "b0", "b1")] == [False, False, True, True]
