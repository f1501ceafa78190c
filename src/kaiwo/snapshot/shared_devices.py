"""Which tenants share each device: one number for each set of tenants, so that a rule is checked once for each set.

It exists only where a rule about sharing is in use: see `sharing_rules`.
"""

import numpy as np

from kaiwo.model.gpus.gpu import GpuTenant, ShareRule, may_share
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows

MAX_SETS = 1 << 16  # beyond it, the sets are numbered again
MAX_ANSWERS = 1 << 18


class _TenantSets:
    """The sets by number, the empty one first; all copies of a table use the same numbers."""

    __slots__ = ("answers", "number", "sets")

    def __init__(self) -> None:
        self.sets: list[frozenset[GpuTenant]] = [frozenset()]
        self.number: dict[frozenset[GpuTenant], int] = {frozenset(): 0}
        self.answers: dict[tuple[GpuTenant, ShareRule, int], bool] = {}

    def number_of(self, tenants: frozenset[GpuTenant]) -> int:
        found = self.number.get(tenants)
        if found is None:
            found = self.number[tenants] = len(self.sets)
            self.sets.append(tenants)
        return found

    def is_closed(self, tenant: GpuTenant, node_rule: ShareRule, number: int) -> bool:
        key = (tenant, node_rule, number)
        found = self.answers.get(key)
        if found is None:
            if len(self.answers) >= MAX_ANSWERS:
                self.answers.clear()
            found = not all(may_share(tenant, other, node_rule) for other in self.sets[number])
            self.answers[key] = found
        return found


class SharedDevices:
    """The tenants that have shares of each device."""

    __slots__ = ("_counts", "_known", "_numbers")

    def __init__(self, rows: int, width: int) -> None:
        self._numbers: IntArray = np.zeros((rows, width), np.int64)
        self._counts: dict[tuple[int, int, GpuTenant], int] = {}  # row, column and tenant: its pods there
        self._known = _TenantSets()

    @property
    def is_full(self) -> bool:
        """So many sets have been numbered that the table should be made again."""
        return len(self._known.sets) > MAX_SETS

    def change(self, row: int, column: int, tenant: GpuTenant, sign: int) -> None:
        key = (row, column, tenant)
        before = self._counts.get(key, 0)
        after = before + sign
        if after:
            self._counts[key] = after
        else:
            self._counts.pop(key, None)
        if (before > 0) != (after > 0):
            there = self._known.sets[self._numbers[row, column]]
            there = there | {tenant} if after > 0 else there - {tenant}
            self._numbers[row, column] = self._known.number_of(there)

    def clear_node(self, row: int) -> None:
        numbers = self._numbers[row]
        for column in numbers.nonzero()[0].tolist():
            for tenant in self._known.sets[numbers[column]]:
                self._counts.pop((row, column, tenant), None)
        numbers[:] = 0

    def closed_to(self, tenant: GpuTenant, node_rule: ShareRule, rows: Rows) -> BoolArray:
        """By device of these nodes: whether its tenants and this one may not share it."""
        numbers = self._numbers[rows]
        present = np.unique(numbers)
        is_closed = np.zeros(int(present.max(initial=0)) + 1, np.bool_)
        for number in present[present > 0].tolist():
            is_closed[number] = self._known.is_closed(tenant, node_rule, number)
        closed: BoolArray = is_closed[numbers]
        return closed

    def tenants_on(self, row: int, column: int) -> frozenset[GpuTenant]:
        return self._known.sets[int(self._numbers[row, column])]

    def copy(self) -> "SharedDevices":
        other = object.__new__(SharedDevices)
        other._numbers, other._counts, other._known = self._numbers.copy(), self._counts.copy(), self._known
        return other
