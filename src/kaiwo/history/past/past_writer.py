"""Write the past of workloads, and forget what is too old.

In:    lives and happenings in batches.   Out: rows of past.db, one transaction a batch.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kaiwo.history.past.happenings import Begin, End, Evicted, Happening, LifeKey, encode
from kaiwo.history.past.past_file import PAST_FILE
from kaiwo.model.obstacle import Obstacle

KEEP_S = 30 * 86_400
KEEP_CONSUMPTION_S = 800 * 86_400  # a year, and the year before it
MAX_BYTES = 10**9
STRAIGHT_S = 120  # two times of a scheduler that are no further apart are one
FORGET_EVERY_S = 3600
LOOK_AT_SIZE_S = 60  # tenants decide how fast the file grows
RESTLESS = 100  # moments of one life; beyond the size, whoever has more keeps the later half
MOST_RESTLESS = 1000  # lives that are cut at once
FREED_PAGES = 2000  # given back to the disk at once
_BEGIN = (
    "INSERT INTO lives (workload, number, submitted_s, queue, user, gpu_milli) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (workload, number) DO UPDATE SET submitted_s = excluded.submitted_s, queue = excluded.queue, "
    "user = excluded.user, gpu_milli = excluded.gpu_milli, ended_s = 0, state = '', exit_code = 0, message = ''"
)
_CONSUMED = (
    "INSERT INTO consumption VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (day, queue, user) DO UPDATE SET "
    "held_milli_s = held_milli_s + excluded.held_milli_s, known_milli_s = known_milli_s + excluded.known_milli_s, "
    "used_milli_s = used_milli_s + excluded.used_milli_s"
)
_END = (
    "UPDATE lives SET ended_s = ?, state = ?, exit_code = ?, message = ?, started_s = ?, attempts = ?, "
    "held_milli_s = ? WHERE id = ?"
)


class Use(msgspec.Struct, gc=False):
    """What a workload used of its GPUs, as far as it was measured."""

    known_milli_s: int = 0
    used_milli_s: int = 0


class GpuHolder(NamedTuple):
    """Who pays for what is held."""

    queue: str
    user: str


class PastBatch(msgspec.Struct):
    """What is written together, in this order."""

    now_s: int
    begun: list[Begin] = []
    happened: list[tuple[LifeKey, int, Happening]] = []
    class_waits: list[tuple[str, str, int, Obstacle | None]] = []
    uses: Mapping[LifeKey, Use] = {}  # to be added
    ended: list[End] = []
    held: Mapping[GpuHolder, int] = {}  # thousandths of a GPU times seconds, to be added to this day
    moved_s: int = 0  # before everything else: all times move by this


class PastWriter:
    """The only writer of a file. One thread at a time."""

    def __init__(self, path: Path, keep_s: int = KEEP_S, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._keep_s, self._max_bytes = path, keep_s, max_bytes
        self._db = PAST_FILE.open_for_writing(path)
        self._ids: dict[LifeKey, int] = {}  # of those that have not ended
        self._watch = 0  # the row of this run of the scheduler
        self._forget_s = self._look_s = 0

    def close(self) -> None:
        self._db.close()

    def write(self, batch: PastBatch) -> None:
        """All of it or nothing; ClusterError when it could not be stored."""
        with self._transaction():
            if batch.moved_s:
                self._move_times(batch.moved_s)
            self._db.executemany(_BEGIN, [_begin_row(each) for each in batch.begun])
            rows = [(self._id_of(key, at_s), at_s, encode(what)) for key, at_s, what in batch.happened]
            self._db.executemany("INSERT INTO happenings (life, at_s, data) VALUES (?, ?, ?)", rows)
            self._count_evictions(batch.happened)
            waits = [(queue, shape, at_s, _encoded(obstacle)) for queue, shape, at_s, obstacle in batch.class_waits]
            self._db.executemany("INSERT INTO class_waits (queue, shape, at_s, data) VALUES (?, ?, ?, ?)", waits)
            self._db.executemany(
                "UPDATE lives SET known_milli_s = known_milli_s + ?, used_milli_s = used_milli_s + ? WHERE id = ?",
                [(use.known_milli_s, use.used_milli_s, self._id_of(key, 0)) for key, use in batch.uses.items()],
            )
            self._add_consumption(batch)
            self._db.executemany(_END, [_end_row(each, self._id_of(each.key, each.ended_s)) for each in batch.ended])
            for each in batch.ended:
                self._ids.pop(each.key, None)
            self._note_time(batch.now_s)
            if batch.now_s >= self._forget_s:
                self._forget_old(batch.now_s)
                self._forget_s = batch.now_s + FORGET_EVERY_S
            if batch.now_s >= self._look_s:
                self._look_s = batch.now_s + LOOK_AT_SIZE_S
                if self._used_bytes() > self._max_bytes:
                    self._keep_small()

    def unended(self) -> list[LifeKey]:
        """Those whose end is not stored."""
        with PAST_FILE.problems(self._path):
            found = self._db.execute("SELECT id, workload, number FROM lives WHERE ended_s = 0").fetchall()
            known = {LifeKey(str(workload), int(number)): id_ for id_, workload, number in found}
        self._ids |= known
        return list(known)

    def watched_until_s(self) -> int:
        """The last time that a scheduler was there; 0: never."""
        with PAST_FILE.problems(self._path):
            return int(self._db.execute("SELECT coalesce(max(until_s), 0) FROM watched").fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with PAST_FILE.problems(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                self._ids, self._watch = {}, 0
                raise

    def _id_of(self, key: LifeKey, at_s: int) -> int:
        found = self._ids.get(key)
        if found is not None:
            return found
        where = (key.workload, key.number)
        row = self._db.execute("SELECT id FROM lives WHERE workload = ? AND number = ?", where).fetchone()
        if row is None:
            self._db.execute(_BEGIN, _begin_row(Begin(key, at_s)))
            row = self._db.execute("SELECT id FROM lives WHERE workload = ? AND number = ?", where).fetchone()
        self._ids[key] = int(row[0])
        return int(row[0])

    def _add_consumption(self, batch: PastBatch) -> None:
        day = batch.now_s // 86_400
        rows: list[tuple[object, ...]] = [(day, *owner, held, 0, 0) for owner, held in batch.held.items()]
        for key, use in batch.uses.items():
            life = (self._id_of(key, 0),)
            owner = self._db.execute("SELECT queue, user FROM lives WHERE id = ?", life).fetchone()
            rows.append((day, *owner, 0, use.known_milli_s, use.used_milli_s))
        self._db.executemany(_CONSUMED, rows)

    def _count_evictions(self, happened: Sequence[tuple[LifeKey, int, Happening]]) -> None:
        evicted = [(self._id_of(key, at_s),) for key, at_s, what in happened if isinstance(what, Evicted)]
        self._db.executemany("UPDATE lives SET evictions = evictions + 1 WHERE id = ?", evicted)

    def _note_time(self, now_s: int) -> None:
        if self._watch:
            self._db.execute("UPDATE watched SET until_s = ? WHERE rowid = ?", (now_s, self._watch))
            return
        last = self._db.execute("SELECT rowid, until_s FROM watched ORDER BY rowid DESC LIMIT 1").fetchone()
        if last is not None and last[1] <= now_s <= last[1] + STRAIGHT_S:
            self._watch = last[0]
            self._db.execute("UPDATE watched SET until_s = ? WHERE rowid = ?", (now_s, self._watch))
        else:
            self._watch = int(self._db.execute("INSERT INTO watched VALUES (?, ?)", (now_s, now_s)).lastrowid or 0)

    def _move_times(self, by_s: int) -> None:
        for table, columns in (
            ("lives", ("submitted_s", "started_s", "ended_s")),
            ("happenings", ("at_s",)), ("class_waits", ("at_s",)), ("watched", ("begins_s", "until_s")),
        ):  # fmt: skip
            moved = ", ".join(
                f"{column} = CASE {column} WHEN 0 THEN 0 ELSE {column} + {by_s} END" for column in columns
            )
            self._db.execute(f"UPDATE {table} SET {moved}")

    def _forget_old(self, now_s: int) -> None:
        over_s = now_s - self._keep_s
        self._forget_lives("ended_s > 0 AND ended_s < ?", (over_s,))
        # What was in the way of a class since long ago may be so still: its last row stays.
        self._db.execute(
            "DELETE FROM class_waits WHERE at_s < ? AND id NOT IN "
            "(SELECT max(id) FROM class_waits WHERE at_s < ? GROUP BY queue, shape)",
            (over_s, over_s),
        )
        self._db.execute("DELETE FROM consumption WHERE day < ?", ((now_s - KEEP_CONSUMPTION_S) // 86_400,))
        self._db.execute("DELETE FROM watched WHERE until_s < ?", (over_s,))
        self._db.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()

    def _keep_small(self) -> None:
        """Forget a tenth of the oldest of each kind, and half of what happened to those to whom most happens."""
        ended = self._db.execute("SELECT count(*) FROM lives WHERE ended_s > 0").fetchone()[0]
        oldest = "ended_s > 0 AND id IN (SELECT id FROM lives WHERE ended_s > 0 ORDER BY ended_s, id LIMIT ?)"
        self._forget_lives(oldest, (-(-ended // 10),))
        waits = self._db.execute("SELECT count(*) FROM class_waits").fetchone()[0]
        self._db.execute("DELETE FROM class_waits WHERE id IN (SELECT id FROM class_waits ORDER BY id LIMIT ?)",
                         (-(-waits // 10),))  # fmt: skip
        restless = self._db.execute(
            "SELECT life, count(*) AS moments FROM happenings GROUP BY life HAVING moments > ? ORDER BY moments DESC "
            "LIMIT ?",
            (RESTLESS, MOST_RESTLESS),
        ).fetchall()
        self._db.executemany(
            "DELETE FROM happenings WHERE id IN (SELECT id FROM happenings WHERE life = ? ORDER BY id LIMIT ?)",
            [(life, moments // 2) for life, moments in restless],
        )
        self._db.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()

    def _forget_lives(self, where: str, values: tuple[int, ...]) -> None:
        self._db.execute(f"DELETE FROM happenings WHERE life IN (SELECT id FROM lives WHERE {where})", values)
        self._db.execute(f"DELETE FROM lives WHERE {where}", values)

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _begin_row(begin: Begin) -> tuple[object, ...]:
    key = begin.key
    return key.workload, key.number, begin.submitted_s, begin.queue, begin.user, begin.gpu_milli


def _end_row(end: End, id_: int) -> tuple[object, ...]:
    return (
        end.ended_s, end.state, end.exit_code, end.message, end.started_s, end.attempts, end.held_milli_s, id_,
    )  # fmt: skip


def _encoded(obstacle: Obstacle | None) -> bytes:
    return b"" if obstacle is None else msgspec.msgpack.encode(obstacle)
