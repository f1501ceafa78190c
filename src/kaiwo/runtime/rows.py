"""Every workload as one row of integer columns, so that 100,000 of them are filtered and sorted in milliseconds.

In:    the cluster's records, again and again.   Out: positions of the rows that a question asks for.
Never: looks at a record that did not change since the last time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import is_not

import numpy as np

from kaiwo.model.program import Record, State
from kaiwo.runtime.intern import Interned
from kaiwo.snapshot.arrays import BoolArray, IntArray

QUEUE, USER, STATE, PRIORITY, SUBMITTED, STARTED, ENDED, GPU, CPU, MEMORY = range(10)  # columns
STATES = tuple(State)
STATE_CODE = {state: code for code, state in enumerate(STATES)}
WAITS = (STATE_CODE[State.WAITING], STATE_CODE[State.HELD])
HOLDS = (STATE_CODE[State.STARTING], STATE_CODE[State.RUNNING], STATE_CODE[State.STOPPING])
MANY = 2_000
LARGEST = 2**53  # an integer beyond this is cut: it is only sorted by

Diff = tuple[list[Record], set[str]]  # new or different, and the names that are gone


class WorkloadRows:
    """Rows in the order of names; a row's position is its rank among the names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.records: list[Record] = []
        self.table: IntArray = np.zeros((10, 0), np.int64)
        self.queues = Interned()
        self.users = Interned()
        self.by_memory: set[str] = set()  # those whose GPU share depends on the device they are given
        self._seen: Sequence[Record] = ()

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """The position of a workload."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def moved(self, records: Sequence[Record]) -> list[int]:
        """Where another record stands than the last time: 3 ms for 100,000."""
        return list(compress(range(len(records)), map(is_not, self._seen, records)))

    def is_far(self, records: Sequence[Record], moved: Sequence[int]) -> bool:
        """So much is different that the event loop should not wait for it."""
        return len(records) - len(self._seen) > MANY or len(moved) > MANY

    def compare(self, records: Sequence[Record], moved: Sequence[int] | None = None) -> Diff:
        """What is different from the last time; records are frozen, so an equal one is the same object."""
        seen, shared = self._seen, min(len(self._seen), len(records))
        moved = self.moved(records) if moved is None else moved
        before = {seen[at].workload.name: seen[at] for at in moved}
        before.update((record.workload.name, record) for record in seen[shared:])
        now = [records[at] for at in moved]
        now.extend(records[shared:])
        changed = [record for record in now if before.pop(record.workload.name, None) is not record]
        return changed, set(before)

    def apply(self, records: Sequence[Record], diff: Diff) -> None:
        """Take over what `compare` found."""
        changed, gone = diff
        self._seen = records
        if gone:
            self._remove(gone)
        fresh = []
        for record in changed:
            at = self.find(record.workload.name)
            if at is None:
                fresh.append(record)
            else:
                self.records[at] = record
                self.table[:, at] = self._row(record, int(self.table[GPU, at]))
        if fresh:
            self._add(fresh)

    def copy(self) -> "WorkloadRows":
        """Independent rows, to change in a thread while these are read."""
        other = WorkloadRows()
        other.names, other.records, other.table = list(self.names), list(self.records), self.table.copy()
        other.queues, other.users = self.queues.copy(), self.users.copy()
        other.by_memory, other._seen = set(self.by_memory), self._seen
        return other

    def in_states(self, codes: Iterable[int]) -> BoolArray:
        """Which rows are in one of these states."""
        wanted = np.zeros(len(STATES), np.bool_)
        wanted[list(codes)] = True
        return wanted[self.table[STATE]]

    def sum_by_queue(self, codes: Iterable[int], amounts: Sequence[int] = ()) -> list[IntArray]:
        """By queue: how many rows are in these states, then the sum of each amount over them."""
        rows = np.flatnonzero(self.in_states(codes))
        queues, size = self.table[QUEUE, rows], len(self.queues)
        sums = [np.bincount(queues, self.table[amount, rows], size) for amount in amounts]
        return [each.astype(np.int64) for each in (np.bincount(queues, minlength=size), *sums)]

    def _remove(self, gone: set[str]) -> None:
        at = [found for name in gone if (found := self.find(name)) is not None]
        self.table = np.delete(self.table, at, axis=1)
        keep = np.ones(len(self.names), np.bool_)
        keep[at] = False
        self.names, self.records = list(compress(self.names, keep)), list(compress(self.records, keep))
        self.by_memory -= gone

    def _add(self, fresh: list[Record]) -> None:
        fresh.sort(key=lambda record: record.workload.name)
        # In parts, since NumPy lets no other thread run while it reads a list.
        parts = [
            np.array([self._row(record) for record in fresh[at : at + MANY]], np.int64)
            for at in range(0, len(fresh), MANY)
        ]
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

    def _row(self, record: Record, given_milli: int = 0) -> tuple[int, ...]:
        workload = record.workload
        gpu = cpu = memory = 0
        by_memory = False
        for role in workload.roles:
            ask, count = role.request, role.count
            gpu += count * ask.charge_milli
            cpu += count * ask.cpu_milli
            memory += count * ask.memory_mib
            by_memory = by_memory or ask.is_memory
        if by_memory:
            self.by_memory.add(workload.name)
            gpu = max(gpu, given_milli)
        else:
            self.by_memory.discard(workload.name)
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


def cut(value: int) -> int:
    """A value that fits the table, whatever somebody wrote."""
    return max(-LARGEST, min(value, LARGEST))
