"""Orders that come with Kaiwo: the queue that is owed most first; inside it priority, then age."""

import numpy as np

from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import View
from kaiwo.queues.order import PlainOrder, entitlement, queue_keys
from kaiwo.queues.share import standing, wants_of
from kaiwo.snapshot.arrays import IntArray, Rows


class FairShare:
    """Serve the queue that is owed most, by its fair share and its parent's policy."""

    name, version = "fair-share", "1"

    def queue_order(self, view: View, queues: Rows, next_need: IntArray, next_since_s: IntArray) -> IntArray:
        """Several keys a queue, the first counting most: see `queues.order`."""
        return queue_keys(standing(view), wants_of(view).totals, np.asarray(queues), next_need, next_since_s)

    def queue_order_of(self, view: View, queue: int, next_need: tuple[int, ...], next_since_s: int) -> tuple[int, ...]:
        """The same, for one queue."""
        order = view.derived.get("plain-order")
        if order is None:
            now = standing(view)
            order = view.derived["plain-order"] = PlainOrder(now, entitlement(now, wants_of(view).totals))
        keys: tuple[int, ...] = order.keys(queue, next_need, next_since_s)
        return keys


class PriorityThenAge:
    """Inside a queue: higher priority first, then who came first."""

    name, version = "priority-then-age", "1"

    def workload_order(self, workload: Workload) -> tuple[int, ...]:
        """Does not depend on the time, so it is worked out once."""
        return (-workload.priority, workload.submitted_s)
