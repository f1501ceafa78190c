"""The values of nodes are those of the nodes as they are, however often they were asked for before."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.gpus.prices.node_values import node_values
from kaiwo.gpus.prices.slot_values import slot_values
from kaiwo.model.request import Request
from kaiwo.model.request_mix import PricedKind, RequestKind, RequestPrices
from kaiwo.snapshot.node_table import SIZE
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

KINDS = (RequestKind(1000, 1, 300), RequestKind(4000, 1, 1000), RequestKind(8000, 2, 1000))
PRICES = RequestPrices(tuple(PricedKind(kind, 4, 900) for kind in KINDS), 0, 16, 1000)
NODES = st.lists(st.integers(0, 3), min_size=1, unique=True)


@given(st.data())
def test_they_follow_what_is_taken_and_given_back(data: st.DataObject) -> None:
    working = WorkingCopy(World(nodes=4, gpus_per_node=2).snapshot())
    view, table = working.view, working.nodes
    slots, savepoints = slot_values(PRICES, tuple(table.models), table.width), [working.savepoint()]
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            row, column, milli = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(1, 500)))
            want, size = Request(2000, 64, 1, milli), int(view.gpus[row, SIZE, column])
            working.take(row, 1, want, np.array([column]), np.array([milli]), np.array([milli * size // 1000]))
            savepoints.append(working.savepoint())
        elif len(savepoints) > 1:
            savepoints.pop()
            working.rollback(savepoints[-1])
        nodes = np.array(sorted(data.draw(NODES)), np.intp)
        nodes = table.all_rows if len(nodes) == len(table.names) else nodes
        known, anew = node_values(view, slots, nodes), node_values(as_it_is(view, nodes), slots, nodes)
        for one, other in zip(known, anew, strict=True):
            assert one.tolist() == other.tolist()


def as_it_is(view: View, nodes: np.ndarray) -> View:
    """A view that knows nothing yet."""
    return view.with_amounts(nodes, view.free[nodes], view.gpus[nodes])
