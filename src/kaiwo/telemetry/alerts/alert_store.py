"""The file that remembers alerts: those that live, those of the last month, silences, and what is still to be told.

KAIWO_HOME/alerts.db   SQLite with a write-ahead log; only its owner may read it

    live      alerts that are pending or fire
    past      alerts that were resolved
    messages  what a channel has not been told yet
    silences  and who made them
    facts     when was the last evaluation, what rules remember, until when ended work was told

An evaluation and what is to be told of it are written together, so that a kill at any moment loses no alert. What was
told and not yet deleted here is told again after a kill: receivers see the same id.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from kaiwo.history.record_file import RecordFile
from kaiwo.model.alerts.alert import Alert, Silence
from kaiwo.telemetry.alerts.evaluate import AlertMemory, Evaluation
from kaiwo.telemetry.alerts.signals import SignalMemory

FILE = "alerts.db"
KEEP_S = 30 * 86_400
MAX_PAST = 100_000
_TABLES = """
CREATE TABLE live (rule TEXT, subject TEXT, data BLOB, PRIMARY KEY (rule, subject)) WITHOUT ROWID;
CREATE TABLE past (number INTEGER PRIMARY KEY, rule TEXT, resolved_s INTEGER, data BLOB);
CREATE INDEX past_rules ON past (rule, number);
CREATE TABLE messages (number INTEGER PRIMARY KEY, channel TEXT, made_unix REAL, data BLOB);
CREATE TABLE silences (id INTEGER PRIMARY KEY AUTOINCREMENT, until_s INTEGER, data BLOB);
CREATE TABLE facts (name TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID;
"""
ALERTS_FILE = RecordFile("alerts", 1, _TABLES, synchronous="FULL")  # a power cut loses no alert


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that one channel is to be told: an alert, or a notice to the person whose work has ended."""

    channel: str
    alert: Alert | None = None
    subject: str = ""  # of a notice: a workload
    code: str = ""  # workload-succeeded | workload-failed | workload-cancelled
    user: str = ""
    text: str = ""
    began_unix: float = 0.0  # by this machine's clock: when the alert fired, or the work ended
    ended_unix: float = 0.0  # when the alert was resolved


class ToldWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """Up to when people know what has ended. Of that second and later ones, which work."""

    until_s: int = 0  # 0: nothing was ever told
    also: tuple[tuple[str, int], ...] = ()  # workloads, each with its submission


class StoredMessage(NamedTuple):
    number: int
    made_unix: float
    message: Message


T = TypeVar("T")
_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class AlertStore:
    """One thread at a time. ClusterError when the file cannot be used."""

    def __init__(self, path: Path, first_number: int = 1) -> None:
        """`first_number`: of a message; those before it are in no file any more."""
        self._path = path
        self._db = ALERTS_FILE.open_for_writing(path)
        with self._problems():
            newest = self._db.execute("SELECT max(number) FROM messages").fetchone()[0] or 0
            self.next_number = max(first_number, 1 + newest)

    def close(self) -> None:
        self._db.close()

    # -- evaluations

    def load(self) -> AlertMemory:
        with self._problems():
            rows = self._db.execute("SELECT data FROM live").fetchall()
            alerts = [alert for (data,) in rows if (alert := _readable(data, Alert)) is not None]
            known = _readable(self._fact("signals"), SignalMemory) or SignalMemory()
            at_s = self._fact("evaluated_s")
        if at_s.isdigit():  # the rows have the times of changes only: what lives was seen at the last evaluation
            known = replace(known, at_s=int(at_s))
            alerts = [replace(alert, seen_s=max(alert.seen_s, int(at_s))) for alert in alerts]
        return AlertMemory(known, {alert.key: alert for alert in alerts})

    def save(self, done: Evaluation, messages: Sequence[Message], now: tuple[int, float]) -> list[StoredMessage]:
        """All or nothing. `now`: by the cluster's clock, and by this machine's."""
        now_s, now_unix = now
        with self._transaction() as db:
            live = [alert for alert in done.changed if not alert.resolved_s]
            over = [alert for alert in done.changed if alert.resolved_s]
            db.executemany("INSERT OR REPLACE INTO live VALUES (?, ?, ?)", [(*a.key, _encode(a)) for a in live])
            db.executemany(
                "DELETE FROM live WHERE rule = ? AND subject = ?",
                [alert.key for alert in (*over, *done.dropped) if alert.key not in done.memory.alerts],
            )
            past = [(alert.rule, alert.resolved_s, _encode(alert)) for alert in over]
            db.executemany("INSERT INTO past (rule, resolved_s, data) VALUES (?, ?, ?)", past)
            if past:
                db.execute("DELETE FROM past WHERE resolved_s < ?", (now_s - KEEP_S,))
                db.execute("DELETE FROM past WHERE number <= (SELECT max(number) FROM past) - ?", (MAX_PAST,))
            self._put_fact("evaluated_s", str(now_s).encode())
            return self._add_messages(messages, now_unix)

    def put(self, alerts: Iterable[Alert], silences: Iterable[Silence]) -> None:
        """What a damaged file had is put into a new one. Silences keep their numbers."""
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO live VALUES (?, ?, ?)", [(*a.key, _encode(a)) for a in alerts])
            rows = [(each.id, each.until_s, _encode(each)) for each in silences]
            db.executemany("INSERT OR REPLACE INTO silences (id, until_s, data) VALUES (?, ?, ?)", rows)

    def save_signals(self, signals: SignalMemory) -> None:
        """What rules remember of the past: now and then, because it is large."""
        with self._transaction():
            self._put_fact("signals", _encode(signals, enc_hook=_write_array))

    def past(self, most: int, rule: str = "", since_s: int = 0) -> list[Alert]:
        """The last ones first."""
        query, given = "SELECT data FROM past WHERE resolved_s >= ?", [since_s]
        of_rule = (rule,) if rule else ()
        query += " AND rule = ?" if rule else ""
        with self._problems():
            rows = self._db.execute(f"{query} ORDER BY number DESC LIMIT ?", (*given, *of_rule, most)).fetchall()
        return [alert for (data,) in rows if (alert := _readable(data, Alert)) is not None]

    # -- messages

    def messages(self) -> list[StoredMessage]:
        with self._problems():
            rows = self._db.execute("SELECT number, made_unix, data FROM messages ORDER BY number").fetchall()
            return [
                StoredMessage(number, float(made), message)
                for number, made, data in rows if (message := _readable(data, Message)) is not None
            ]  # fmt: skip

    def add_notices(self, messages: Sequence[Message], told: ToldWork, now_unix: float) -> list[StoredMessage]:
        """What people are to be told of ended work, and what they know then."""
        with self._transaction():
            self._put_fact("told_work", _encode(told))
            return self._add_messages(messages, now_unix)

    def told_work(self) -> ToldWork:
        with self._problems():
            return _readable(self._fact("told_work"), ToldWork) or ToldWork()

    def delete_messages(self, numbers: Iterable[int]) -> None:
        with self._transaction() as db:
            db.executemany("DELETE FROM messages WHERE number = ?", [(number,) for number in numbers])

    # -- silences

    def silences(self, now_s: int) -> list[Silence]:
        """Those that are not over."""
        with self._problems():
            rows = self._db.execute("SELECT data, id FROM silences WHERE until_s > ? ORDER BY id", (now_s,)).fetchall()
        found = [(_readable(data, Silence), number) for data, number in rows]
        return [replace(silence, id=number) for silence, number in found if silence is not None]

    def add_silence(self, silence: Silence) -> Silence:
        with self._transaction() as db:
            db.execute("DELETE FROM silences WHERE until_s < ?", (silence.made_s - KEEP_S,))
            added = db.execute(
                "INSERT INTO silences (until_s, data) VALUES (?, ?)", (silence.until_s, _encode(silence))
            )
            return replace(silence, id=added.lastrowid or 0)

    def remove_silence(self, number: int) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM silences WHERE id = ?", (number,))

    # -- rows

    def _add_messages(self, messages: Sequence[Message], now_unix: float) -> list[StoredMessage]:
        made = [StoredMessage(self.next_number + at, now_unix, each) for at, each in enumerate(messages)]
        self.next_number += len(made)
        rows = [(each.number, each.message.channel, now_unix, _encode(each.message)) for each in made]
        self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
        return made

    def _fact(self, name: str) -> bytes:
        found = self._db.execute("SELECT data FROM facts WHERE name = ?", (name,)).fetchone()
        return bytes(found[0]) if found else b""

    def _put_fact(self, name: str, data: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, data))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._problems():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _problems(self) -> contextlib.AbstractContextManager[None]:
        return ALERTS_FILE.problems(self._path)


def _readable(data: object, kind: type[T]) -> T | None:
    """None for a row that is damaged: it is left out, and the others are read."""
    if not isinstance(data, bytes):
        return None
    try:
        return _decode(data, type=kind, ext_hook=_read_array)
    except (msgspec.MsgspecError, ValueError, TypeError):
        return None


def _write_array(value: object) -> msgspec.msgpack.Ext:
    assert isinstance(value, np.ndarray), f"{type(value)} is not stored"
    kind = b"f" if value.dtype.kind == "f" else b"i"
    return msgspec.msgpack.Ext(1, kind + value.astype(np.float64 if kind == b"f" else np.int64).tobytes())


def _read_array(_: int, data: memoryview) -> np.ndarray:
    return np.frombuffer(data[1:], np.float64 if bytes(data[:1]) == b"f" else np.int64)
