"""The local cluster's state on disk: one SQLite file.

In:    changes of the world.   Out: the rows to fill a world with after a restart.
Never: keeps half a change. A change is on disk before anybody hears of it.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kaiwo.clusters.embedded.lifecycle import Life, Placement, Run
from kaiwo.clusters.embedded.state import TABLES, Transaction
from kaiwo.model.errors import ClusterError
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation

SCHEMA = 1
# The values are msgpack; the other columns are there for people who look inside with sqlite3.
TABLES_SQL = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS workloads (
    name TEXT PRIMARY KEY, state TEXT NOT NULL, queue TEXT NOT NULL, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS pods (
    workload TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, phase TEXT NOT NULL, run TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (workload, name)
);
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, workload TEXT NOT NULL, pod TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS kept (workload TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS promises (workload TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reservations (name TEXT PRIMARY KEY, data BLOB NOT NULL);
"""
CHECKPOINT_BYTES = 8 << 20

_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "nodes": msgspec.msgpack.Decoder(Node),
    "queues": msgspec.msgpack.Decoder(Queue),
    "lives": msgspec.msgpack.Decoder(Life),
    "pods": msgspec.msgpack.Decoder(Placement),
    "runs": msgspec.msgpack.Decoder(Run),
    "kept": msgspec.msgpack.Decoder(tuple[Nomination, ...]),
    "promises": msgspec.msgpack.Decoder(PlannedStart),
    "reservations": msgspec.msgpack.Decoder(Reservation),
}


class Store:
    """One writer at a time, on whichever thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._explained():
            if not path.exists():
                path.touch(mode=0o600)  # environments may hold secrets
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
            self._db.execute("PRAGMA journal_mode=WAL")
            # With a write-ahead log, NORMAL loses nothing that was committed when the process dies, however it dies:
            # the log is in the page cache. Only a power cut can lose the last moments (never the file's integrity),
            # and then the processes that ran are gone as well. FULL would cost a disk flush per change.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint=0")  # `checkpoint` does it, off the event loop
            self._db.execute("PRAGMA busy_timeout=10000")
            self._db.executescript(TABLES_SQL)
        self._check_schema()

    def load(self) -> dict[str, dict[Any, Any]]:
        """All rows, as `World.load` wants them."""
        with self._explained():
            rows = {table: {} for table in TABLES}  # type: dict[str, dict[Any, Any]]
            for table in ("nodes", "queues", "reservations"):
                decode = _decoders[table].decode
                rows[table] = {name: decode(data) for name, data in self._db.execute(f"SELECT name, data FROM {table}")}
            decode = _decoders["lives"].decode
            lives = [decode(data) for (data,) in self._db.execute("SELECT data FROM workloads")]
            lives.sort(key=lambda life: (life.record.ended_s, life.record.version))
            rows["lives"] = {life.workload.name: life for life in lives}
            decode = _decoders["pods"].decode
            pods = self._db.execute("SELECT workload, name, data FROM pods")
            rows["pods"] = {(workload, name): decode(data) for workload, name, data in pods}
            decode = _decoders["runs"].decode
            rows["runs"] = {
                key: decode(data) for key, data in self._db.execute("SELECT id, data FROM runs ORDER BY rowid")
            }
            decode = _decoders["kept"].decode
            rows["kept"] = {name: decode(data) for name, data in self._db.execute("SELECT workload, data FROM kept")}
            planned = self._db.execute("SELECT workload, data FROM promises")
            rows["promises"] = {name: _decoders["promises"].decode(data) for name, data in planned}
            return rows

    def save(self, change: Transaction) -> None:
        """Keep a change: all of it, or nothing and a ClusterError."""
        if not change.before:
            return
        with self._transaction() as db:
            for table in TABLES:
                gone, kept = [], []
                for key, value in change.rows(table):
                    if value is None:
                        gone.append(key if isinstance(key, tuple) else (key,))
                    else:
                        kept.append(_row(table, key, value))
                if gone:
                    db.executemany(_DELETE[table], gone)
                if kept:
                    db.executemany(_UPSERT[table], kept)

    def meta(self, key: str) -> str:
        """A single value; empty when it was never set."""
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def set_meta(self, key: str, value: str) -> None:
        """Keep a single value."""
        with self._transaction() as db:
            db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value))

    def wants_checkpoint(self) -> bool:
        """The log has grown enough to be folded into the file."""
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > CHECKPOINT_BYTES

    def checkpoint(self) -> None:
        """Fold the log into the file without stopping the writer. Called on a thread of its own."""
        with self._explained(), contextlib.closing(sqlite3.connect(self.path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Fold the log in and let go of the file."""
        with self._explained():
            self._db.close()

    def _check_schema(self) -> None:
        found = self.meta("schema")
        if found and int(found) > SCHEMA:
            raise ClusterError(
                f"{self.path} was written by a newer Kaiwo (schema {found}, this one knows {SCHEMA}); "
                "upgrade Kaiwo, or set KAIWO_HOME to another folder"
            )
        if not found:
            self.set_meta("schema", str(SCHEMA))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise ClusterError(
                f"{self.path} cannot be used ({error}); check the disk's space and permissions"
            ) from error
        except sqlite3.DatabaseError as error:
            raise ClusterError(f"{self.path} is damaged ({error}); move it away to begin anew") from error


def _row(table: str, key: Any, value: Any) -> tuple[Any, ...]:
    match table:
        case "lives":
            return key, str(value.record.state), value.workload.queue, _encode(value)
        case "pods":
            return *key, value.pod.node, str(value.pod.phase), value.run.id, _encode(value)
        case "runs":
            return key, value.workload, value.pod, _encode(value)
        case _:
            return key, _encode(value)


_UPSERT = {
    "nodes": "INSERT INTO nodes VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
    "queues": "INSERT INTO queues VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
    "lives": "INSERT INTO workloads VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " state = excluded.state, queue = excluded.queue, data = excluded.data",
    "pods": "INSERT INTO pods VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " node = excluded.node, phase = excluded.phase, run = excluded.run, data = excluded.data",
    "runs": "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
    "kept": "INSERT INTO kept VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
    "promises": "INSERT INTO promises VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
    "reservations": "INSERT INTO reservations VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data",
}
_DELETE = {
    "nodes": "DELETE FROM nodes WHERE name = ?",
    "queues": "DELETE FROM queues WHERE name = ?",
    "lives": "DELETE FROM workloads WHERE name = ?",
    "pods": "DELETE FROM pods WHERE workload = ? AND name = ?",
    "runs": "DELETE FROM runs WHERE id = ?",
    "kept": "DELETE FROM kept WHERE workload = ?",
    "promises": "DELETE FROM promises WHERE workload = ?",
    "reservations": "DELETE FROM reservations WHERE name = ?",
}
