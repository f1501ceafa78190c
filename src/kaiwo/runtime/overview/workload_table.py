"""Every workload as one row of integer columns, so that 100,000 of them are filtered and sorted in milliseconds.

In:    the cluster's records that changed.   Out: positions of the rows that a question asks for.

Also: Names as small numbers, which arrays can hold.
Also: Sums over the workloads by queue and state, kept along with the rows: asked often, and never counted anew.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

import numpy as np

from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.snapshot.array_types import BoolArray, IntArray


class Interned:
    """Every name once; its code never changes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}
        self._sorted: list[str] = []
        self._rank: IntArray = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def code(self, name: str) -> int:
        """The name's code, a new one when it is new."""
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, name: str) -> int | None:
        """The code of a known name."""
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
        at = bisect_left(self._sorted, name)
        return at, name in self._codes

    def copy(self) -> "Interned":
        """An independent set of names."""
        other = Interned()
        other.names, other._codes = list(self.names), dict(self._codes)
        return other


Sums = tuple[int, int, int, int]  # workloads, milli-GPU, milli-CPU, MiB
NOTHING: Sums = (0, 0, 0, 0)


class Tally:
    """Exact integers, so what was added can be taken off again."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], Sums] = {}  # by queue and state, as codes

    def add(self, queue: int, state: int, amounts: tuple[int, int, int], sign: int = 1) -> None:
        """Count a workload in, or with sign -1 out."""
        before = self._sums.get((queue, state), NOTHING)
        gpu, cpu, memory = amounts
        after = (before[0] + sign, before[1] + sign * gpu, before[2] + sign * cpu, before[3] + sign * memory)
        self._sums[queue, state] = after

    def by_queue(self, states: Collection[int]) -> dict[int, Sums]:
        """For each queue, the sums over its workloads in these states."""
        found: dict[int, Sums] = {}
        for (queue, state), sums in self._sums.items():
            if state in states:
                a, b, c, d = found.get(queue, NOTHING)
                found[queue] = (a + sums[0], b + sums[1], c + sums[2], d + sums[3])
        return found

    def count(self, state: int) -> int:
        """How many workloads are in this state."""
        return sum(sums[0] for (_, at), sums in self._sums.items() if at == state)

    def copy(self) -> "Tally":
        """An independent one."""
        other = Tally()
        other._sums = dict(self._sums)
        return other


QUEUE, USER, STATE, PRIORITY, SUBMITTED, STARTED, ENDED, GPU, CPU, MEMORY = range(10)  # columns
STATES = tuple(WorkloadState)
STATE_CODE = {state: code for code, state in enumerate(STATES)}
WAITS = (STATE_CODE[WorkloadState.WAITING], STATE_CODE[WorkloadState.HELD])
HOLDS = (STATE_CODE[WorkloadState.STARTING], STATE_CODE[WorkloadState.RUNNING], STATE_CODE[WorkloadState.STOPPING])
MANY = 500
LARGEST = 2**53  # an integer beyond this is cut: it is only sorted by


class WorkloadRows:
    """Rows in the order of names; a row's position is its rank among the names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.records: list[WorkloadRecord] = []
        self.table: IntArray = np.zeros((10, 0), np.int64)
        self.queues = Interned()
        self.users = Interned()
        self.tally = Tally()
        self.unweighed: set[str] = set()  # those that hold devices by memory, until somebody says what share that is

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """The position of a workload."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def apply(self, records: Iterable[WorkloadRecord], gone: Iterable[str] = ()) -> None:
        """Take over what is new or different, and what is gone."""
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
        """Independent rows, to change in a thread while these are read."""
        other = WorkloadRows()
        other.names, other.records, other.table = list(self.names), list(self.records), self.table.copy()
        other.queues, other.users = self.queues.copy(), self.users.copy()
        other.unweighed, other.tally = set(self.unweighed), self.tally.copy()
        return other

    def in_states(self, codes: Iterable[int]) -> BoolArray:
        """Which rows are in one of these states."""
        wanted = np.zeros(len(STATES), np.bool_)
        wanted[list(codes)] = True
        return wanted[self.table[STATE]]

    def weigh(self, name: str, given_milli: int) -> None:
        """A memory request counts by the share that its memory is of the devices it was given."""
        self.unweighed.discard(name)
        at = self.find(name)
        if at is not None:
            row = self.table[:, at].tolist()
            row[GPU] = cut(max(given_milli, _asked_milli(self.records[at].workload)))
            self._set(at, row)

    def _set(self, at: int, row: Sequence[int]) -> None:
        self._count(self.table[:, at].tolist(), -1)
        self._count(row)
        self.table[:, at] = row

    def _count(self, row: Sequence[int], sign: int = 1) -> None:
        self.tally.add(row[QUEUE], row[STATE], (row[GPU], row[CPU], row[MEMORY]), sign)

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
        self.unweighed.difference_update(gone)

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
            (self.unweighed.add if STATE_CODE[record.state] in HOLDS else self.unweighed.discard)(workload.name)
        return (
            self.queues.code(workload.queue),
            self.users.code(workload.user),
            STATE_CODE[record.state],
            cut(workload.priority),
            cut(workload.submitted_s),
            cut(record.started_s),
            cut(record.ended_s),
            cut(gpu),
            cut(cpu),
            cut(memory),
        )


def _asked_milli(workload: Workload) -> int:
    return sum(role.count * role.request.charge_milli for role in workload.roles)


def cut(value: int) -> int:
    """A value that fits the table, whatever somebody wrote."""
    return max(-LARGEST, min(value, LARGEST))
