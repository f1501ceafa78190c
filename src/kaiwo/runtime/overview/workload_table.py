"""A table of all workloads, one row of integer columns each, so that 100,000 are filtered and sorted in milliseconds.

Names are in the order that people expect: `sweep-2` before `sweep-10`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from typing import TypeVar

import numpy as np

from kaiwo.manifests.values.names import ARRAY_LABEL, INDEX_LABEL
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.snapshot.array_types import BoolArray, IntArray

T = TypeVar("T")


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
        """The alphabetical rank of each name, by its code."""
        if len(self._rank) != len(self.names):
            self._sorted = sorted(self.names)
            self._rank = np.empty(len(self.names), np.int64)
            for rank, name in enumerate(self._sorted):
                self._rank[self._codes[name]] = rank
        return self._rank

    def rank_of(self, name: str) -> tuple[int, bool]:
        """The rank that a name has or would have, and whether it has one."""
        self.ranks()
        return bisect_left(self._sorted, name), name in self._codes

    def copy(self) -> "Interned":
        other = Interned()
        other.names, other._codes = list(self.names), dict(self._codes)
        return other


class WorkloadCounts:
    """How many workloads each queue has in each state, kept up to date with the rows."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}  # by queue and state, as codes

    def add(self, queue: int, state: int, sign: int = 1) -> None:
        """Add a workload, or subtract it with sign -1."""
        self._counts[queue, state] = self._counts.get((queue, state), 0) + sign

    def by_queue(self, states: Collection[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for (queue, state), count in self._counts.items():
            if state in states:
                found[queue] = found.get(queue, 0) + count
        return found

    def in_state(self, state: int) -> int:
        return sum(count for (_, at), count in self._counts.items() if at == state)

    def copy(self) -> "WorkloadCounts":
        other = WorkloadCounts()
        other._counts = dict(self._counts)
        return other


COLUMNS = 12
QUEUE, USER, STATE, PRIORITY, SUBMITTED, STARTED, ENDED, GPU, CPU, MEMORY, ARRAY, INDEX = range(COLUMNS)
NO_ARRAY = 0  # in the column ARRAY
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
        self.order_keys: list[str] = []  # of the names
        self.records: list[WorkloadRecord] = []
        self.table: IntArray = np.zeros((COLUMNS, 0), np.int64)
        self.queues = Interned()
        self.users = Interned()
        self.arrays = Interned()  # as `namespace/array`
        self.arrays.code("")  # NO_ARRAY
        self.counts = WorkloadCounts()
        self.unmeasured: set[str] = set()  # hold devices by memory; their share of the GPU is not known yet

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        at = bisect_left(self.order_keys, order_key(name))
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
        """A copy that a thread can change while these rows are read."""
        other = WorkloadRows()
        other.names, other.records, other.table = list(self.names), list(self.records), self.table.copy()
        other.order_keys = list(self.order_keys)
        other.queues, other.users, other.arrays = self.queues.copy(), self.users.copy(), self.arrays.copy()
        other.unmeasured, other.counts = set(self.unmeasured), self.counts.copy()
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
            row[GPU] = clamp(max(given_milli, asked_milli(self.records[at].workload)))
            self._set(at, row)

    def _set(self, at: int, row: Sequence[int]) -> None:
        self._count(self.table[:, at].tolist(), -1)
        self._count(row)
        self.table[:, at] = row

    def _count(self, row: Sequence[int], sign: int = 1) -> None:
        self.counts.add(row[QUEUE], row[STATE], sign)

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
        self.order_keys = list(compress(self.order_keys, keep))
        self.unmeasured.difference_update(gone)

    def _add(self, fresh: list[WorkloadRecord]) -> None:
        keys, fresh = _in_order(fresh)
        # In parts, since NumPy lets no other thread run while it reads a list.
        parts = [
            np.array([self._row(record) for record in fresh[at : at + MANY]], np.int64)
            for at in range(0, len(fresh), MANY)
        ]
        for part in parts:
            for row in part.tolist():
                self._count(row)
        columns = np.concatenate(parts).T
        at = [bisect_left(self.order_keys, key) for key in keys]
        self.table = np.insert(self.table, at, columns, axis=1)
        self.records = _inserted(self.records, at, fresh)
        self.names = _inserted(self.names, at, [record.workload.name for record in fresh])
        self.order_keys = _inserted(self.order_keys, at, keys)

    def _row(self, record: WorkloadRecord, given_milli: int = 0) -> tuple[int, ...]:
        workload = record.workload
        gpu, cpu, memory = asked_milli(workload), 0, 0
        for role in workload.roles:
            cpu += role.count * role.request.cpu_milli
            memory += role.count * role.request.memory_mib
        if any(role.request.is_memory for role in workload.roles):
            gpu = max(gpu, given_milli)
            (self.unmeasured.add if STATE_CODE[record.state] in HOLDS else self.unmeasured.discard)(workload.name)
        codes = self.queues.code(workload.queue), self.users.code(workload.user), STATE_CODE[record.state]
        times = workload.submitted_s, record.started_s, record.ended_s
        return (*codes, *map(clamp, (workload.priority, *times, gpu, cpu, memory)), *self._task(workload))

    def _task(self, workload: Workload) -> tuple[int, int]:
        """The code of its array, and its index in it."""
        array = workload.labels.get(ARRAY_LABEL) if workload.labels else None
        if not array:
            return NO_ARRAY, 0
        index = workload.labels.get(INDEX_LABEL, "")
        number = int(index) if index.isdecimal() and len(index) < 16 else 0
        return self.arrays.code(f"{workload.name.partition('/')[0]}/{array}"), number


def order_key(name: str) -> str:
    """Sorts like the name, but a number at its end by its value. No two names have the same key."""
    head, dash, number = name.rpartition("-")
    is_number = number.isascii() and number.isdecimal() and len(number) <= 9
    return f"{head}{dash}{number:0>9}\0{name}" if is_number else f"{name}\0"


def _in_order(records: Iterable[WorkloadRecord]) -> tuple[list[str], list[WorkloadRecord]]:
    ordered = sorted((order_key(record.workload.name), at, record) for at, record in enumerate(records))
    return [key for key, _, _ in ordered], [record for _, _, record in ordered]


def _inserted(known: list[T], places: Sequence[int], fresh: Sequence[T]) -> list[T]:
    """A list with new items before these places, which ascend. It costs as many steps as there are new items."""
    merged: list[T] = []
    start = 0
    for place, item in zip(places, fresh, strict=True):
        if place > start:
            merged += known[start:place]
            start = place
        merged.append(item)
    merged += known[start:]
    return merged


def asked_milli(workload: Workload) -> int:
    return sum(role.count * role.request.least_milli for role in workload.roles)


def clamp(value: int) -> int:
    """A value that fits into the table, whatever people wrote."""
    return max(-LARGEST, min(value, LARGEST))
