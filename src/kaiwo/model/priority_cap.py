"""How high the priority of a workload may be in its queue.

People write priorities themselves, so each queue has a maximum: the smallest `maxPriority` of the queue and all queues
above it. Where none of them says one, it is DEFAULT_MAX_PRIORITY, or the value of the workload's PriorityClass if that
is higher: administrators make the classes, and Kubernetes decides who may use them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kaiwo.model.queue import Queue
from kaiwo.model.workload import Workload

DEFAULT_MAX_PRIORITY = 1000  # the highest of the priorities that have a name


class PriorityCap(NamedTuple):
    """The highest priority in a queue, and the queue that says so; empty: none does, and the default holds."""

    most: int = DEFAULT_MAX_PRIORITY
    queue: str = ""

    def most_for(self, workload: Workload) -> int:
        return self.most if self.queue else max(self.most, workload.class_priority)


DEFAULT_CAP = PriorityCap()


def priority_cap(queues: Mapping[str, Queue], name: str) -> PriorityCap:
    """The cap of a queue: of equal ones, that of the nearest queue."""
    found = DEFAULT_CAP
    for _ in range(len(queues)):  # no path is longer, even if the queues form a loop that was not refused
        queue = queues.get(name)
        if queue is None:
            break
        if queue.max_priority is not None and (not found.queue or queue.max_priority < found.most):
            found = PriorityCap(queue.max_priority, name)
        name = queue.parent
    return found
