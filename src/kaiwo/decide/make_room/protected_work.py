"""Running work that queues would have to give, but that a disruption budget or a minimum run time protects.

In:    running work that is not stopped.   Out: facts with numbers, for the obstacles of work that waits for it.
"""

from collections.abc import Iterable

import numpy as np

from kaiwo.model.obstacle import ProtectedByBudget, ProtectedByMinRunTime
from kaiwo.model.workload import Pod, Workload
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows
from kaiwo.snapshot.queue_table import QueueTable

MOST_NAMED = 3


class ProtectedWork:
    """The work of a cycle that disruption budgets protect, by queue."""

    def __init__(self) -> None:
        self._kept: dict[str, list[tuple[Workload, int]]] = {}  # each with its milli-GPU

    def add(self, workload: Workload, pods: Iterable[Pod]) -> None:
        """These pods of a workload are not stopped."""
        milli = [sum(share.milli for share in pod.devices) for pod in pods]
        if milli:
            self._kept.setdefault(workload.queue, []).append((workload, sum(milli)))

    def rows(self, queues: QueueTable) -> Rows:
        """The queues with such work."""
        return np.array(sorted(queues.row[name] for name in self._kept if name in queues.row), np.intp)

    def protection(self, queue: str, below: int | None = None) -> ProtectedByBudget | None:
        """What budgets protect in a queue; of the work below a priority, if one is given."""
        kept = [each for each in self._kept.get(queue, ()) if below is None or each[0].priority < below]
        if not kept:
            return None
        names = sorted(workload.name for workload, _ in kept)
        why = min((workload.stays_why for workload, _ in kept if workload.stays_why), default="")
        named, more = tuple(names[:MOST_NAMED]), max(0, len(names) - MOST_NAMED)
        return ProtectedByBudget(queue, sum(milli for _, milli in kept), named, more, why)


def protected_by_min_run_time(
    queues: QueueTable, queue: IntArray, is_young: BoolArray, milli: IntArray
) -> list[ProtectedByMinRunTime]:
    """What minimum run times protect in each queue. `queue`, `is_young` and `milli` stand beside each other."""
    return [
        ProtectedByMinRunTime(
            queues.names[row], int(milli[is_young & (queue == row)].sum()), int(queues.tree.min_runtime_s[row])
        )
        for row in np.unique(queue[is_young]).tolist()
    ]
