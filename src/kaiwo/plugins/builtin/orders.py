"""Orders that come with Kaiwo: the poorest queue first; inside it priority, then age."""

import numpy as np

from kaiwo.model.workload import Workload
from kaiwo.plugins.contract import View
from kaiwo.queues.share import dominant_share_ppm, dominant_share_ppm_of
from kaiwo.snapshot.arrays import IntArray, Rows


class PoorestQueue:
    """Serve the queue that uses least of what it deserves."""

    name, version = "poorest-queue", "1"

    def queue_order(self, view: View, queues: Rows) -> IntArray:
        """Dominant share in parts per million."""
        return dominant_share_ppm(view, queues)

    def queue_order_of(self, view: View, queue: int) -> int:
        """The same, for one queue."""
        return dominant_share_ppm_of(view, queue)


class QueuePriority:
    """Between equally poor queues the more important one is served first."""

    name, version = "queue-priority", "1"

    def queue_order(self, view: View, queues: Rows) -> IntArray:
        """Higher priority, lower number."""
        return -view.queues.priority[np.asarray(queues)]

    def queue_order_of(self, view: View, queue: int) -> int:
        """The same, for one queue."""
        return -view.queues.queues[queue].priority


class PriorityThenAge:
    """Inside a queue: higher priority first, then who came first."""

    name, version = "priority-then-age", "1"

    def workload_order(self, workload: Workload) -> tuple[int, ...]:
        """Does not depend on the time, so it is worked out once."""
        return (-workload.priority, workload.submitted_s)
