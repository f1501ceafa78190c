"""Random queue trees and what their queues want."""

import numpy as np
from hypothesis import strategies as st

from kaiwo.model.queue import UNLIMITED, Fairness, Queue, QueueAmounts, SharePolicy
from kaiwo.queues.fair_share import QueueDemand
from kaiwo.snapshot.queue_table import EditableQueueTable, ResourceVector

TOTALS = np.array([40_000, 96_000, 4_096])


@st.composite
def amounts(draw: st.DrawFn, unit: int, most: int) -> QueueAmounts:
    quota = draw(
        st.one_of(st.just(UNLIMITED), st.integers(0, most).map(lambda n: n * unit), st.integers(0, most * unit))
    )
    limit = draw(st.one_of(st.just(UNLIMITED), st.integers(0, 2 * most).map(lambda n: max(quota, 0) + n * unit)))
    return QueueAmounts(quota, limit, draw(st.integers(0, 5)))


@st.composite
def queue_sets(draw: st.DrawFn) -> dict[str, Queue]:
    """Up to a dozen queues in up to three levels, in a random order."""
    count = draw(st.integers(1, 12))
    queues: dict[str, Queue] = {}
    depth: dict[str, int] = {}
    for number in range(count):
        name = f"q{number:02d}"
        parents = ["", *(each for each, level in depth.items() if level < 2)]
        parent = draw(st.sampled_from(parents))
        depth[name] = depth[parent] + 1 if parent else 0
        queues[name] = Queue(
            name,
            parent,
            priority=draw(st.sampled_from([50, 100, 100, 200])),
            gpu=draw(amounts(1_000, 10)),
            cpu=draw(amounts(1_000, 20)),
            memory=draw(amounts(64, 10)),
            fairness=Fairness(draw(st.sampled_from([None, *SharePolicy]))),
            created_s=draw(st.integers(0, 3)),
        )
    return {name: queues[name] for name in draw(st.permutations(sorted(queues)))}


@st.composite
def demands(draw: st.DrawFn, queues: dict[str, Queue]) -> dict[str, ResourceVector]:
    """What each leaf uses and waits for."""
    parents = {queue.parent for queue in queues.values()}
    whole = st.integers(0, 30).map(lambda n: n * 1_000)
    charge = st.tuples(st.one_of(whole, st.integers(0, 30_000)), whole, st.integers(0, 4_000))
    return {name: draw(charge) for name in queues if name not in parents}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[EditableQueueTable, QueueDemand]:
    queues = draw(queue_sets())
    table = EditableQueueTable(queues)
    demand = table.sum_up_tree(draw(demands(queues)))
    oldest = np.array(draw(st.lists(st.integers(0, 5), min_size=len(queues), max_size=len(queues))))
    return table, QueueDemand(TOTALS, demand, oldest)
