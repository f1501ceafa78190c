"""One page of the list of workloads: which match a query, in which order, with the tasks of an array folded or not.

A page begins after a key (the sorted value, then the name), so rows that come and go never shift it.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from kaiwo.model.workload_record import WorkloadState
from kaiwo.runtime.overview.workload_table import (
    ARRAY,
    ENDED,
    GPU,
    INDEX,
    LARGEST,
    NO_ARRAY,
    PRIORITY,
    QUEUE,
    STARTED,
    STATE,
    STATE_CODE,
    STATES,
    SUBMITTED,
    USER,
    Interned,
    WorkloadRows,
    clamp,
    order_key,
)  # fmt: skip
from kaiwo.snapshot.array_types import BoolArray, IntArray, Rows

MAX_RUNS = 4  # ranges of indices that are written out

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
    namespace: str = ""
    node: str = ""  # only what has pods there
    labels: tuple[tuple[str, str], ...] = ()  # all of these
    text: str = ""  # part of the name
    ended_since_s: int = 0  # only what ended then or later; 0: any
    sort: str = "-submitted"
    after: PageStart | None = None
    limit: int = 50
    folds: bool = False  # all tasks of an array are one row


class FoldedArray(msgspec.Struct, frozen=True):
    """The tasks of one array that match a query."""

    array: str  # namespace/array
    states: dict[WorkloadState, int]  # how many are in each state
    indices: str  # "0-9999"
    gpu_milli: int
    submitted_s: int  # of the first
    started_s: int  # of the first that has started; 0: none has
    ended_s: int  # of the last, if all have ended; 0: some have not


class WorkloadPage(msgspec.Struct, frozen=True):
    positions: list[int]
    total: int  # rows that match, on all pages
    next: PageStart | None  # None: this is the last page
    folded: dict[int, FoldedArray] = {}  # by the position that stands for an array


def select(
    rows: WorkloadRows, query: WorkloadQuery, queues: Collection[str] = (), works: Collection[str] = ()
) -> WorkloadPage:
    """One page. `queues`: the queue of the query and those below it. `works`: what has pods on its node."""
    matching = _matching(rows, query, queues or (query.queue,), works)
    keys, size, every = _keys(rows, query.sort, matching), len(rows), matching
    if query.folds:
        keys, matching = _first_of_arrays(rows, keys, matching)
    total = len(matching)
    if query.after is not None:
        beyond = keys > _threshold(rows, query.after, size)
        keys, matching = keys[beyond], matching[beyond]
    more = len(keys) > query.limit
    if len(keys) > 4 * query.limit:  # 100,000 keys: 1 ms, against 8 for sorting them all
        head = np.argpartition(keys, query.limit)[: query.limit]
        keys, matching = keys[head], matching[head]
    chosen = matching[np.argsort(keys, kind="stable")[: query.limit]].tolist()
    next_start = _after(rows, query.sort, chosen[-1]) if more else None
    return WorkloadPage(chosen, total, next_start, _folded(rows, every, chosen) if query.folds else {})


def count_states(
    rows: WorkloadRows, query: WorkloadQuery, queues: Collection[str] = (), works: Collection[str] = ()
) -> dict[str, int]:
    """How many workloads in each state the query matches, on all pages."""
    states = rows.table[STATE, _matching(rows, query, queues or (query.queue,), works)]
    counts = np.bincount(states, minlength=len(STATES)).tolist()
    return {state.value: count for state, count in zip(STATES, counts, strict=True)}


def _first_of_arrays(rows: WorkloadRows, keys: IntArray, matching: Rows) -> tuple[IntArray, Rows]:
    """Of each array only the row that comes first in the order of the query stands for it."""
    arrays = rows.table[ARRAY, matching]
    is_task = arrays != NO_ARRAY
    if not is_task.any():
        return keys, matching
    tasks = np.flatnonzero(is_task)
    order = tasks[np.lexsort((keys[tasks], arrays[tasks]))]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = arrays[order][1:] != arrays[order][:-1]
    shown = ~is_task
    shown[order[is_first]] = True
    return keys[shown], matching[shown]


def _folded(rows: WorkloadRows, matching: Rows, chosen: Sequence[int]) -> dict[int, FoldedArray]:
    codes = {at: int(rows.table[ARRAY, at]) for at in chosen if rows.table[ARRAY, at] != NO_ARRAY}
    if not codes:
        return {}
    arrays = rows.table[ARRAY, matching]
    found = {}
    for at, code in codes.items():
        tasks = rows.table[:, matching[arrays == code]]
        counts = np.bincount(tasks[STATE], minlength=len(STATES)).tolist()
        started = tasks[STARTED][tasks[STARTED] > 0]
        found[at] = FoldedArray(
            rows.arrays.names[code],
            {state: count for state, count in zip(STATES, counts, strict=True) if count},
            index_ranges(np.sort(tasks[INDEX])),
            int(tasks[GPU].sum()),
            int(tasks[SUBMITTED].min()),
            int(started.min()) if len(started) else 0,
            int(tasks[ENDED].max()) if tasks[ENDED].all() else 0,
        )
    return found


def index_ranges(indices: IntArray) -> str:
    """Sorted indices as people write them: "0-9999", "0-98:2", "1,5-7", "0,3,4,9-11 and 20 more"."""
    steps = np.diff(indices)
    if len(indices) > 2 and steps[0] > 1 and (steps == steps[0]).all():
        return f"{indices[0]}-{indices[-1]}:{steps[0]}"
    ends = np.flatnonzero(np.append(steps != 1, True))
    starts = np.append(0, ends[:-1] + 1)
    runs = np.stack([indices[starts], indices[ends]], axis=1)[:MAX_RUNS].tolist()
    shown = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    left = len(indices) - int(ends[:MAX_RUNS][-1] + 1 if len(ends) else 0)
    return f"{shown} and {left} more" if left else shown


def _matching(rows: WorkloadRows, query: WorkloadQuery, queues: Collection[str], works: Collection[str]) -> Rows:
    mask = np.ones(len(rows), np.bool_)
    if query.node:
        mask[:] = False
        mask[[at for name in works if (at := rows.find(name)) is not None]] = True
    if query.states:
        mask &= rows.in_states(STATE_CODE[state] for state in query.states)
    if query.queue:
        mask &= _named(rows.queues, queues)[rows.table[QUEUE]]
    if query.user:
        mask &= _named(rows.users, (query.user,))[rows.table[USER]]
    if query.ended_since_s:
        mask &= rows.table[ENDED] >= query.ended_since_s
    found = np.flatnonzero(mask)
    if query.text:
        text, names = query.text.lower(), rows.names
        found = found[np.array([text in names[at].lower() for at in found.tolist()], np.bool_)]
    if query.namespace:
        start, names = f"{query.namespace}/", rows.names
        found = found[np.array([names[at].startswith(start) for at in found.tolist()], np.bool_)]
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
    rank = bisect_right(rows.order_keys, order_key(after.name))  # names before this are not after it
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
