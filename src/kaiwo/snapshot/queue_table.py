"""The queues as arrays and as a tree: what each may use, and uses together with everything below it.

In:    queues, and what their workloads hold.   Out: one row per queue, sorted by name, and each one's path to the root.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from kaiwo.model.queue import (
    DEFAULT_FAIRNESS,
    POLICY_RULES,
    UNLIMITED,
    Fairness,
    GpuModelAmounts,
    Queue,
    ReclaimStrategy,
    SharePolicy,
)
from kaiwo.snapshot.array_types import IntArray, ReadOnly, Rows, freeze, read_only

GPU, CPU, MEMORY = 0, 1, 2  # columns
RESOURCES = ("gpu", "cpu", "memory")
INFINITE = np.iinfo(np.int64).max // 4
ResourceVector = tuple[int, ...]  # milli-GPU, milli-CPU, MiB; then, where known, milli-GPU of each bounded model
PathBound = tuple[int, int, int]  # of a queue on the path to the root: row, column, the most
_UNLISTED = GpuModelAmounts()
NO_PARENT = -1
SHARE_POLICIES = list(SharePolicy)  # a policy's code is its position
# One flag for each policy's code, named as in `PolicyRules`: index them with an array of codes.
BY_PRIORITY, BY_WAIT, SERVES_FULLY = np.array([POLICY_RULES[each] for each in SHARE_POLICIES], np.bool_).T


class QueueTree:
    """Changes only when the set of queues or a definition does."""

    def __init__(self, queues: Sequence[Queue], path: Sequence[tuple[int, ...]]) -> None:
        count = len(queues)
        self.parent: Rows = np.array([each[1] if len(each) > 1 else NO_PARENT for each in path], np.intp)
        self.depth: IntArray = np.array([len(each) - 1 for each in path], np.int64)
        height = max((len(each) for each in path), default=0)
        # ancestors[d, row]: the queue at depth d on the way from the root to this row; NO_PARENT below the row itself.
        self.ancestors: Rows = np.full((height, count), NO_PARENT, np.intp)
        for row, each in enumerate(path):
            self.ancestors[: len(each), row] = each[::-1]
        by_parent = np.lexsort((np.arange(count), self.parent))
        self.levels: Sequence[Rows] = tuple(by_parent[self.depth[by_parent] == depth] for depth in range(height))
        self.age: IntArray = np.zeros(count, np.int64)  # 0 is the oldest; ties are broken by name
        oldest_first = sorted(range(count), key=lambda row: (queues[row].created_s, queues[row].name))
        self.age[oldest_first] = np.arange(count)
        fairness = [_inherited([queues[above].fairness for above in each]) for each in path]
        self.policy: Sequence[SharePolicy] = tuple(each[0] for each in fairness)  # among the queues right below it
        self.policy_code: IntArray = np.array([SHARE_POLICIES.index(each) for each in self.policy], np.int64)
        self.reclaim_strategy: Sequence[ReclaimStrategy] = tuple(each[1] for each in fairness)
        self.min_runtime_s: IntArray = np.array([each[2] for each in fairness], np.int64)
        for array in (self.parent, self.ancestors, *self.levels):
            freeze(array)
        for array in (self.depth, self.age, self.policy_code, self.min_runtime_s):
            freeze(array)

    def diverging_queues(self, row: int, among: Rows | None = None) -> tuple[Rows, Rows]:
        """Where the path from the root to `row` and that to each queue diverge: the first differing queue of both.

        Where one queue is an ancestor of the other, its own entry is that queue itself.
        """
        own = self.ancestors[: int(self.depth[row]) + 1, row]
        rows = np.arange(len(self.depth)) if among is None else among
        shared = (self.ancestors[: len(own), rows] == own[:, None]).cumprod(axis=0).sum(axis=0)
        ours = own[np.minimum(shared, len(own) - 1)]
        theirs = self.ancestors[np.minimum(shared, self.depth[rows]), rows]
        return ours, theirs


def _inherited(upwards: Sequence[Fairness]) -> tuple[SharePolicy, ReclaimStrategy, int]:
    """Each setting from the nearest queue that has it."""
    settings = (*upwards, DEFAULT_FAIRNESS)
    return (
        next(each.policy for each in settings if each.policy is not None),
        next(each.reclaim_strategy for each in settings if each.reclaim_strategy is not None),
        next(each.min_runtime_s for each in settings if each.min_runtime_s is not None),
    )


class ModelUsage(NamedTuple):
    queue: str
    model: str
    milli: int
    is_non_preemptible: bool


class QueueTable(ReadOnly):
    """One row per queue, one column per resource; in `all_used` and `all_non_preemptible` also per bounded model."""

    names: Sequence[str]
    queues: Sequence[Queue]
    row: Mapping[str, int]
    is_leaf: Sequence[bool]
    path: Sequence[tuple[int, ...]]
    quota: IntArray
    limit: IntArray
    weight: IntArray
    priority: IntArray
    models: Sequence[str]  # GPU models that some queue bounds; one column each
    model_quota: IntArray  # INFINITE where a queue does not list the model
    model_limit: IntArray
    limits: Sequence[tuple[PathBound, ...]]  # by queue: every bound that it must keep, its own and those above it
    quotas: Sequence[tuple[PathBound, ...]]
    is_bounded: Sequence[bool]
    is_model_bounded: Sequence[bool]
    all_used: IntArray
    all_non_preemptible: IntArray

    @property
    def used(self) -> IntArray:
        """GPU, CPU and memory alone, without the columns of single GPU models."""
        return self.all_used[:, : len(RESOURCES)]

    @property
    def non_preemptible(self) -> IntArray:
        return self.all_non_preemptible[:, : len(RESOURCES)]

    @cached_property
    def tree(self) -> QueueTree:
        return QueueTree(self.queues, self.path)

    def sum_up_tree(self, charges: Mapping[str, ResourceVector]) -> IntArray:
        """Amounts of leaves, summed up the tree."""
        total = np.zeros_like(self.all_used)
        for name, charge in charges.items():
            self._add(total, name, charge, +1)
        return total

    def _add(self, amount: IntArray, name: str, charge: ResourceVector, sign: int) -> None:
        row = self.row.get(name)
        if row is None:
            return
        for above in self.path[row]:
            for column, each in enumerate(charge):
                if each:
                    amount[above, column] += sign * each


class EditableQueueTable(QueueTable):
    """The table whose usage events patch; its queues never change. All others get it from `read_only`."""

    __setattr__ = object.__setattr__  # type: ignore[assignment]  # this one can be written

    def __init__(
        self,
        queues: Mapping[str, Queue] = {},
        used: Mapping[str, ResourceVector] = {},
        non_preemptible: Mapping[str, ResourceVector] = {},
        by_model: Iterable[ModelUsage] = (),
    ) -> None:
        self.names = tuple(sorted(queues))
        self.queues = tuple(queues[name] for name in self.names)
        self.row = MappingProxyType({name: row for row, name in enumerate(self.names)})
        parents = {queue.parent for queue in self.queues}
        self.is_leaf = tuple(name not in parents for name in self.names)
        self.path = tuple(self._path(name) for name in self.names)
        amounts = [(queue.gpu, queue.cpu, queue.memory) for queue in self.queues]
        self.quota = _matrix([[a.quota for a in each] for each in amounts])
        self.limit = _matrix([[a.limit for a in each] for each in amounts])
        self.weight = _matrix([[a.weight for a in each] for each in amounts])
        self.priority = np.array([queue.priority for queue in self.queues], np.int64)
        self.quota[self.quota == UNLIMITED] = INFINITE
        self.limit[self.limit == UNLIMITED] = INFINITE
        self.models = tuple(sorted({model for queue in self.queues for model in queue.gpu_models}))
        listed = [[queue.gpu_models.get(model, _UNLISTED) for model in self.models] for queue in self.queues]
        self.model_quota = _matrix([[a.quota for a in each] for each in listed], len(self.models))
        self.model_limit = _matrix([[a.limit for a in each] for each in listed], len(self.models))
        self.model_quota[self.model_quota == UNLIMITED] = INFINITE
        self.model_limit[self.model_limit == UNLIMITED] = INFINITE
        self.limits = self._bounds(np.hstack((self.limit, self.model_limit)))
        self.quotas = self._bounds(np.hstack((self.quota, self.model_quota)))
        self.is_bounded = tuple(map(bool, self.limits))
        self.is_model_bounded = tuple(
            any(column >= len(RESOURCES) for _, column, _ in (*limits, *quotas))
            for limits, quotas in zip(self.limits, self.quotas, strict=True)
        )
        for each in (self.quota, self.limit, self.weight, self.priority, self.model_quota, self.model_limit):
            freeze(each)
        empty = np.zeros((len(self.names), len(RESOURCES) + len(self.models)), np.int64)
        self.set_used(empty, np.zeros_like(empty))
        for amount, charges in ((self._used, used), (self._non_preemptible, non_preemptible)):
            for name, charge in charges.items():
                self._add(amount, name, charge, +1)
        self.count_models(by_model)

    def set_used(self, used: IntArray, non_preemptible: IntArray) -> None:
        """What is used, and its non-preemptible part; others see read-only views."""
        self._used, self._non_preemptible = used, non_preemptible
        self.all_used, self.all_non_preemptible = read_only(used), read_only(non_preemptible)
        self._read_only: QueueTable | None = None

    def count_models(self, by_model: Iterable[ModelUsage]) -> None:
        for usage in by_model:
            by_column = tuple(usage.milli if usage.model == model else 0 for model in self.models)
            self.add(usage.queue, (0,) * len(RESOURCES) + by_column, +1, usage.is_non_preemptible)

    def add(self, name: str, charge: ResourceVector, sign: int, is_non_preemptible: bool = False) -> None:
        """Charge a leaf and every queue above it."""
        self._add(self._used, name, charge, sign)
        if is_non_preemptible:
            self._add(self._non_preemptible, name, charge, sign)

    def copy(self) -> "EditableQueueTable":
        """An independent table; only the usage can differ."""
        other = object.__new__(EditableQueueTable)
        other.__dict__.update(self.__dict__)
        other.set_used(self.all_used.copy(), self.all_non_preemptible.copy())
        return other

    def read_only(self) -> QueueTable:
        """The same rows, for those who may only read them."""
        if self._read_only is None:
            _ = self.tree  # computed once for all that show these queues
            private = ("_used", "_non_preemptible", "_read_only")
            self._read_only = QueueTable({name: each for name, each in vars(self).items() if name not in private})
        return self._read_only

    def _bounds(self, most: IntArray) -> tuple[tuple[PathBound, ...], ...]:
        own = [
            [(row, column, bound) for column, bound in enumerate(each) if bound < INFINITE]
            for row, each in enumerate(most.tolist())
        ]
        return tuple(tuple(each for above in path for each in own[above]) for path in self.path)

    def _path(self, name: str) -> tuple[int, ...]:
        """From the queue up to its root. A loop (refused at creation) ends where it closes."""
        rows: list[int] = []
        while name in self.row and self.row[name] not in rows:
            rows.append(self.row[name])
            name = self.queues[rows[-1]].parent
        return tuple(rows)


def _matrix(values: list[list[int]], columns: int = len(RESOURCES)) -> IntArray:
    return np.array(values, np.int64).reshape(len(values), columns)
