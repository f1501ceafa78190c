"""A table of all workloads, one row of integer columns each: 100,000 are filtered and sorted in milliseconds.

A page of a query begins after a key (the sorted value, then the name), so rows that come and go never shift it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from typing import TypeVar

import msgspec
import numpy as np

from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows

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
        self.counts = WorkloadCounts()
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
        """A copy that a thread can change while these rows are read."""
        other = WorkloadRows()
        other.names, other.records, other.table = list(self.names), list(self.records), self.table.copy()
        other.queues, other.users = self.queues.copy(), self.users.copy()
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
        at = [bisect_left(self.names, record.workload.name) for record in fresh]
        self.table = np.insert(self.table, at, columns, axis=1)
        self.records = _inserted(self.records, at, fresh)
        self.names = _inserted(self.names, at, [record.workload.name for record in fresh])

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
        return (*codes, *map(clamp, (workload.priority, *times, gpu, cpu, memory)))


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


SORTS: dict[str, int | None] = {  # by column; None: by name
    "name": None,
    "queue": QUEUE,
    "state": STATE,
    "priority": PRIORITY,
    "submitted": SUBMITTED,
    "started": STARTED,
    "ended": ENDED,
    "gpus": GPU,
}


class PageStart(msgspec.Struct, frozen=True, array_like=True):
    """The last row of the page before: its sorted value and its name. Only valid for the same order."""

    sort: str
    value: int | str
    name: str


class WorkloadQuery(msgspec.Struct, frozen=True):
    """`sort` with a leading '-' is descending; equal rows come in the order of names."""

    states: tuple[WorkloadState, ...] = ()  # any of these; none: every state
    queue: str = ""  # with those below it
    user: str = ""
    labels: tuple[tuple[str, str], ...] = ()  # all of these
    text: str = ""  # part of the name
    sort: str = "-submitted"
    after: PageStart | None = None
    limit: int = 50


class WorkloadPage(msgspec.Struct, frozen=True):
    positions: list[int]
    total: int  # rows that match, on all pages
    next: PageStart | None  # None: this is the last page


def select(rows: WorkloadRows, query: WorkloadQuery, queues: Collection[str] = ()) -> WorkloadPage:
    """One page. `queues`: the queue of the query and those below it."""
    matching = _matching(rows, query, queues or (query.queue,))
    keys, size = _keys(rows, query.sort, matching), len(rows)
    total = len(matching)
    if query.after is not None:
        beyond = keys > _threshold(rows, query.after, size)
        keys, matching = keys[beyond], matching[beyond]
    more = len(keys) > query.limit
    if len(keys) > 4 * query.limit:  # 100,000 keys: 1 ms, against 8 for sorting them all
        head = np.argpartition(keys, query.limit)[: query.limit]
        keys, matching = keys[head], matching[head]
    chosen = matching[np.argsort(keys, kind="stable")[: query.limit]].tolist()
    return WorkloadPage(chosen, total, _after(rows, query.sort, chosen[-1]) if more else None)


def _matching(rows: WorkloadRows, query: WorkloadQuery, queues: Collection[str]) -> Rows:
    mask = np.ones(len(rows), np.bool_)
    if query.states:
        mask &= rows.in_states(STATE_CODE[state] for state in query.states)
    if query.queue:
        mask &= _named(rows.queues, queues)[rows.table[QUEUE]]
    if query.user:
        mask &= _named(rows.users, (query.user,))[rows.table[USER]]
    found = np.flatnonzero(mask)
    if query.text:
        text, names = query.text.lower(), rows.names
        found = found[np.array([text in names[at].lower() for at in found.tolist()], np.bool_)]
    for key, value in query.labels:
        records = rows.records
        found = found[np.array([records[at].workload.labels.get(key) == value for at in found.tolist()], np.bool_)]
    return found


def _named(known: Interned, names: Collection[str]) -> BoolArray:
    wanted = np.zeros(len(known), np.bool_)
    wanted[[code for name in names if (code := known.find(name)) is not None]] = True
    return wanted


def _keys(rows: WorkloadRows, sort: str, at: Rows) -> IntArray:
    """One integer a row that sorts like (value, name): the value times the number of rows, plus the name's rank."""
    column, sign = _order(sort)
    if column is None:
        return sign * at.astype(np.int64)
    values = rows.table[column, at]
    names = _names(rows, column)
    if names is not None:
        values = names.ranks()[values]
    return sign * _fold(values, len(rows)) * len(rows) + at


def _threshold(rows: WorkloadRows, after: PageStart, size: int) -> int:
    """The key of the row that ended the last page, or the one it would have if it were still there."""
    column, sign = _order(after.sort)
    rank = bisect_right(rows.names, after.name)  # names before this are not after it
    if column is None:
        return rank - 1 if sign > 0 else -(rank - (1 if rank and rows.names[rank - 1] == after.name else 0))
    names = _names(rows, column)
    if names is None:
        return sign * int(_fold(np.array([after.value], np.int64), size)[0]) * size + rank - 1
    place, is_known = names.rank_of(str(after.value))
    if is_known:
        return sign * place * size + rank - 1
    return place * size - 1 if sign > 0 else (1 - place) * size - 1


def _fold(values: IntArray, size: int) -> IntArray:
    """Values clamped so that the key fits into 64 bits; only absurd ones are, and those sort by name."""
    most = (2**62) // max(size, 1)
    return np.clip(values, -most, most) if most < LARGEST else values


def _after(rows: WorkloadRows, sort: str, at: int) -> PageStart:
    column, _ = _order(sort)
    if column is None:
        return PageStart(sort, 0, rows.names[at])
    value = int(rows.table[column, at])
    names = _names(rows, column)
    return PageStart(sort, clamp(value) if names is None else names.names[value], rows.names[at])


def _order(sort: str) -> tuple[int | None, int]:
    return SORTS[sort.removeprefix("-")], -1 if sort.startswith("-") else 1


def _names(rows: WorkloadRows, column: int) -> Interned | None:
    return rows.queues if column == QUEUE else rows.users if column == USER else None
