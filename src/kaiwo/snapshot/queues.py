"""The queues as arrays: what each may use and uses, with everything below it.

In:    queues, and what their workloads hold.   Out: one row a queue, sorted by name, and each one's path to the root.
"""

from collections.abc import Mapping

import numpy as np

from kaiwo.model.queue import UNLIMITED, Queue
from kaiwo.snapshot.arrays import IntArray

GPU, CPU, MEMORY = 0, 1, 2  # columns
RESOURCES = ("gpu", "cpu", "memory")
ENDLESS = np.iinfo(np.int64).max // 4

Charge = tuple[int, int, int]  # milli-GPU, milli-CPU, MiB


class QueueTable:
    """One row a queue, one column a resource."""

    def __init__(self, queues: Mapping[str, Queue] = {}, used: Mapping[str, Charge] = {}) -> None:
        self.names: list[str] = sorted(queues)
        self.queues: list[Queue] = [queues[name] for name in self.names]
        self.row: dict[str, int] = {name: row for row, name in enumerate(self.names)}
        parents = {queue.parent for queue in self.queues}
        self.is_leaf: list[bool] = [name not in parents for name in self.names]
        self.path: list[tuple[int, ...]] = [self._path(name) for name in self.names]
        amounts = [(queue.gpu, queue.cpu, queue.memory) for queue in self.queues]
        self.quota: IntArray = _column([[a.quota for a in each] for each in amounts])
        self.limit: IntArray = _column([[a.limit for a in each] for each in amounts])
        self.weight: IntArray = _column([[a.weight for a in each] for each in amounts])
        self.priority: IntArray = np.array([queue.priority for queue in self.queues], np.int64)
        self.quota[self.quota == UNLIMITED] = ENDLESS
        self.limit[self.limit == UNLIMITED] = ENDLESS
        bounded = [bool((limits < ENDLESS).any()) for limits in self.limit]
        self.is_bounded: list[bool] = [any(bounded[above] for above in path) for path in self.path]
        self.used: IntArray = np.zeros((len(self.names), len(RESOURCES)), np.int64)
        for name, charge in used.items():
            self.add(name, charge, +1)

    def add(self, name: str, charge: Charge, sign: int) -> None:
        """Charge a leaf and every queue above it."""
        row = self.row.get(name)
        if row is None:
            return
        for above in self.path[row]:
            self.used[above, GPU] += sign * charge[0]
            self.used[above, CPU] += sign * charge[1]
            self.used[above, MEMORY] += sign * charge[2]

    def copy(self) -> "QueueTable":
        """An independent table; only what is used can differ."""
        other = object.__new__(QueueTable)
        other.__dict__.update(self.__dict__)
        other.used = self.used.copy()
        return other

    def _path(self, name: str) -> tuple[int, ...]:
        """From the queue itself up to its root. A cycle (refused at the door) ends where it closes."""
        rows: list[int] = []
        while name in self.row and self.row[name] not in rows:
            rows.append(self.row[name])
            name = self.queues[rows[-1]].parent
        return tuple(rows)


def _column(values: list[list[int]]) -> IntArray:
    return np.array(values, np.int64).reshape(len(values), len(RESOURCES))
