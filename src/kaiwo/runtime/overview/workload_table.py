"""Every workload as one row of integer columns, so that 100,000 of them are filtered and sorted in milliseconds."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

import numpy as np

from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.snapshot.array_types import BoolArray, IntArray


class Interned:
    """Names as small integers, for arrays. The code of a name never changes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}
        self._sorted: list[str] = []
        self._rank: IntArray = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def code(self, name: str) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, name: str) -> int | None:
        return self._codes.get(name)

    def ranks(self) -> IntArray:
        """By code, the name's place in the alphabet."""
        if len(self._rank) != len(self.names):
            self._sorted = sorted(self.names)
            self._rank = np.empty(len(self.names), np.int64)
            for rank, name in enumerate(self._sorted):
                self._rank[self._codes[name]] = rank
        return self._rank

    def place(self, name: str) -> tuple[int, bool]:
        """The rank that a name has or would have, and whether it has one."""
        self.ranks()
        return bisect_left(self._sorted, name), name in self._codes

    def copy(self) -> "Interned":
        other = Interned()
        other.names, other._codes = list(self.names), dict(self._codes)
        return other


Totals = tuple[int, int, int, int]  # workloads, milli-GPU, milli-CPU, MiB
NOTHING: Totals = (0, 0, 0, 0)


class WorkloadTotals:
    """Totals by queue and state, kept up to date with the rows. Exact integers, so a workload can be subtracted."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Totals] = {}  # by queue and state, as codes

    def add(self, queue: int, state: int, amounts: tuple[int, int, int], sign: int = 1) -> None:
        """Add a workload, or subtract it with sign -1."""
        before = self._sums.get((queue, state), NOTHING)
        gpu, cpu, memory = amounts
        after = (before[0] + sign, before[1] + sign * gpu, before[2] + sign * cpu, before[3] + sign * memory)
        self._sums[queue, state] = after

    def by_queue(self, states: Collection[int]) -> dict[int, Totals]:
        found: dict[int, Totals] = {}
        for (queue, state), sums in self._sums.items():
            if state in states:
                a, b, c, d = found.get(queue, NOTHING)
                found[queue] = (a + sums[0], b + sums[1], c + sums[2], d + sums[3])
        return found

    def count(self, state: int) -> int:
        return sum(sums[0] for (_, at), sums in self._sums.items() if at == state)

    def copy(self) -> "WorkloadTotals":
        other = WorkloadTotals()
        other._sums = dict(self._sums)
        return other


QUEUE, USER, STATE, PRIORITY, SUBMITTED, STARTED, ENDED, GPU, CPU, MEMORY = range(10)  # columns
STATES = tuple(WorkloadState)
STATE_CODE = {state: code for code, state in enumerate(STATES)}
WAITS = (STATE_CODE[WorkloadState.WAITING], STATE_CODE[WorkloadState.HELD])
HOLDS = (STATE_CODE[WorkloadState.STARTING], STATE_CODE[WorkloadState.RUNNING], STATE_CODE[WorkloadState.STOPPING])
MANY = 500
LARGEST = 2**53  # larger integers are clamped: they only serve to sort


class WorkloadRows:
    """Rows in the order of names; a row's position is its rank among the names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.records: list[WorkloadRecord] = []
        self.table: IntArray = np.zeros((10, 0), np.int64)
        self.queues = Interned()
        self.users = Interned()
        self.totals = WorkloadTotals()
        self.unmeasured: set[str] = set()  # hold devices by memory; their share of the GPU is not known yet

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def apply(self, records: Iterable[WorkloadRecord], gone: Iterable[str] = ()) -> None:
        self._remove(gone)
        fresh = []
        for record in records:
            at = self.find(record.workload.name)
            if at is None:
                fresh.append(record)
            else:
                self.records[at] = record
                self._set(at, self._row(record, int(self.table[GPU, at])))
        if fresh:
            self._add(fresh)

    def copy(self) -> "WorkloadRows":
        """For changes in a thread while these rows are read."""
        other = WorkloadRows()
        other.names, other.records, other.table = list(self.names), list(self.records), self.table.copy()
        other.queues, other.users = self.queues.copy(), self.users.copy()
        other.unmeasured, other.totals = set(self.unmeasured), self.totals.copy()
        return other

    def in_states(self, codes: Iterable[int]) -> BoolArray:
        wanted = np.zeros(len(STATES), np.bool_)
        wanted[list(codes)] = True
        return wanted[self.table[STATE]]

    def set_gpu_milli(self, name: str, given_milli: int) -> None:
        """A memory request counts as the share of GPU that its memory is of its devices."""
        self.unmeasured.discard(name)
        at = self.find(name)
        if at is not None:
            row = self.table[:, at].tolist()
            row[GPU] = clamp(max(given_milli, _asked_milli(self.records[at].workload)))
            self._set(at, row)

    def _set(self, at: int, row: Sequence[int]) -> None:
        self._count(self.table[:, at].tolist(), -1)
        self._count(row)
        self.table[:, at] = row

    def _count(self, row: Sequence[int], sign: int = 1) -> None:
        self.totals.add(row[QUEUE], row[STATE], (row[GPU], row[CPU], row[MEMORY]), sign)

    def _remove(self, gone: Iterable[str]) -> None:
        at = [found for name in gone if (found := self.find(name)) is not None]
        if not at:
            return
        for row in self.table[:, at].T.tolist():
            self._count(row, -1)
        self.table = np.delete(self.table, at, axis=1)
        keep = np.ones(len(self.names), np.bool_)
        keep[at] = False
        self.names, self.records = list(compress(self.names, keep)), list(compress(self.records, keep))
        self.unmeasured.difference_update(gone)

    def _add(self, fresh: list[WorkloadRecord]) -> None:
        fresh.sort(key=lambda record: record.workload.name)
        # In parts, since NumPy lets no other thread run while it reads a list.
        parts = [
            np.array([self._row(record) for record in fresh[at : at + MANY]], np.int64)
            for at in range(0, len(fresh), MANY)
        ]
        for part in parts:
            for row in part.tolist():
                self._count(row)
        columns = np.concatenate(parts).T
        at = np.array([bisect_left(self.names, record.workload.name) for record in fresh])
        self.table = np.insert(self.table, at, columns, axis=1)
        if len(fresh) < 50:
            for record in fresh:
                place = bisect_left(self.names, record.workload.name)
                self.names.insert(place, record.workload.name)
                self.records.insert(place, record)
        else:
            self.records = sorted(self.records + fresh, key=lambda record: record.workload.name)
            self.names = [record.workload.name for record in self.records]

    def _row(self, record: WorkloadRecord, given_milli: int = 0) -> tuple[int, ...]:
        workload = record.workload
        gpu, cpu, memory = _asked_milli(workload), 0, 0
        for role in workload.roles:
            cpu += role.count * role.request.cpu_milli
            memory += role.count * role.request.memory_mib
        if any(role.request.is_memory for role in workload.roles):
            gpu = max(gpu, given_milli)
            (self.unmeasured.add if STATE_CODE[record.state] in HOLDS else self.unmeasured.discard)(workload.name)
        return (
            self.queues.code(workload.queue),
            self.users.code(workload.user),
            STATE_CODE[record.state],
            clamp(workload.priority),
            clamp(workload.submitted_s),
            clamp(record.started_s),
            clamp(record.ended_s),
            clamp(gpu),
            clamp(cpu),
            clamp(memory),
        )


def _asked_milli(workload: Workload) -> int:
    return sum(role.count * role.request.charge_milli for role in workload.roles)


def clamp(value: int) -> int:
    """A value that fits into the table, whatever people wrote."""
    return max(-LARGEST, min(value, LARGEST))
