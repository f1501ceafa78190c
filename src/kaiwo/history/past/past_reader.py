"""Read the past of workloads: one life with all that happened to it, and lists of those that ended."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kaiwo.history.past.consumption import Consumption, ConsumptionQuery, select_consumption
from kaiwo.history.past.happenings import (
    ClassWait,
    Happening,
    Life,
    LifeKey,
    Moment,
    decode,
    decode_obstacle,
)
from kaiwo.history.past.past_file import PAST_FILE
from kaiwo.history.record_file import RecordReader
from kaiwo.model.obstacle import Obstacle

MAX_MOMENTS = 5000  # of one life: the last ones
_COLUMNS = (
    "submitted_s", "queue", "user", "gpu_milli", "started_s", "ended_s", "state", "attempts", "exit_code", "message",
    "evictions", "held_milli_s", "known_milli_s", "used_milli_s",
)  # fmt: skip
_LIFE = (int, str, int, int, str, str, int, int, int, str, int, int, str, int, int, int, int)  # kinds of a row
_SELECT = f"SELECT id, workload, number, {', '.join(_COLUMNS)} FROM lives"


class PastQuery(NamedTuple):
    """Lives that ended. Empty: any."""

    since_s: int = 0
    queues: Sequence[str] = ()
    user: str = ""
    states: Sequence[str] = ()
    text: str = ""  # in the name
    before: tuple[int, int] | None = None  # the page after the life with this end and id
    limit: int = 50


class PastLives(NamedTuple):
    lives: list[Life]  # the last to end first
    total: int  # that match, on all pages
    next: tuple[int, int] | None


class PastLife(NamedTuple):
    life: Life
    moments: list[Moment]
    is_cut: bool  # there were more moments before these


class PastReader(RecordReader):
    """A file that is not there yet has nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PAST_FILE)

    def numbers_of(self, workload: str) -> list[int]:
        """The lives of a name, the first one first."""
        query = "SELECT number FROM lives WHERE workload = ? ORDER BY submitted_s, number"
        return [number for (number,) in self._rows(query, (workload,), (int,))]

    def life(self, key: LifeKey) -> PastLife | None:
        found = self._rows(f"{_SELECT} WHERE workload = ? AND number = ?", (key.workload, key.number), _LIFE)
        if not found:
            return None
        query = "SELECT at_s, data FROM happenings WHERE life = ? ORDER BY id DESC LIMIT ?"
        rows = self._rows(query, (found[0][0], MAX_MOMENTS + 1), (int, bytes))
        moments = [Moment(at_s, what) for at_s, data in reversed(rows[:MAX_MOMENTS]) if (what := _decoded(data))]
        return PastLife(_life(found[0]), moments, len(rows) > MAX_MOMENTS)

    def class_waits(self, queue: str, shape: str, from_s: int, to_s: int) -> list[ClassWait]:
        """What was first in the way of a class in this time; the first one may be from before."""
        key = (queue, shape)
        before = self._rows(
            "SELECT at_s, data FROM class_waits WHERE queue = ? AND shape = ? AND at_s <= ? ORDER BY id DESC LIMIT 1",
            (*key, from_s),
            (int, bytes),
        )
        within = self._rows(
            "SELECT at_s, data FROM class_waits WHERE queue = ? AND shape = ? AND at_s > ? AND at_s < ? "
            "ORDER BY id LIMIT ?",
            (*key, from_s, to_s, MAX_MOMENTS),
            (int, bytes),
        )
        return [ClassWait(at_s, _obstacle(data)) for at_s, data in (*before, *within)]

    def watched(self, from_s: int, to_s: int) -> list[tuple[int, int]]:
        """When a scheduler was there to see what happened."""
        query = "SELECT begins_s, until_s FROM watched WHERE until_s >= ? AND begins_s <= ? ORDER BY rowid"
        found = self._rows(query, (from_s, to_s), (int, int))
        return [(begins_s, until_s) for begins_s, until_s in found]

    def ended(self, query: PastQuery) -> PastLives:
        where, values = _conditions(query)
        total = self._all(f"SELECT count(*) FROM lives WHERE {where}", values)
        if query.before is not None:
            where += " AND (ended_s, id) < (?, ?)"
            values = (*values, *query.before)
        order = "ORDER BY ended_s DESC, id DESC LIMIT ?"
        rows = self._rows(f"{_SELECT} WHERE {where} {order}", (*values, query.limit + 1), _LIFE)
        lives = [_life(row) for row in rows[: query.limit]]
        last = rows[query.limit - 1] if len(rows) > query.limit else None
        end = 3 + _COLUMNS.index("ended_s")
        return PastLives(lives, total[0][0] if total else 0, None if last is None else (last[end], last[0]))

    def consumption(self, query: ConsumptionQuery) -> list[Consumption]:
        """In the order of time, queues and users."""
        return [Consumption(*row) for row in self._rows(*select_consumption(query), (str, str, str, int, int, int))]

    def _rows(self, query: str, values: Sequence[Any], kinds: Sequence[type]) -> list[Any]:
        """Without those whose values are not of these kinds: somebody or a bad disk has changed the file."""
        return [row for row in self._all(query, values) if all(map(isinstance, row, kinds))]

    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self.connection() as db:
            return [] if db is None else db.execute(query, tuple(values)).fetchall()


def _conditions(query: PastQuery) -> tuple[str, tuple[Any, ...]]:
    parts: list[str] = ["ended_s > 0", "ended_s >= ?"]
    values: list[Any] = [query.since_s]
    for column, wanted in (("queue", query.queues), ("state", query.states)):
        if wanted:
            parts.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    if query.user:
        parts.append("user = ?")
        values.append(query.user)
    if query.text:
        parts.append("instr(lower(workload), ?)")
        values.append(query.text.lower())
    return " AND ".join(parts), tuple(values)


def _life(row: Sequence[Any]) -> Life:
    return Life(LifeKey(row[1], row[2]), **dict(zip(_COLUMNS, row[3:], strict=True)))


def _obstacle(data: bytes) -> Obstacle | None:
    try:
        return decode_obstacle(data) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _decoded(data: bytes) -> Happening | None:
    """None for what a newer version wrote, or a bad disk."""
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
