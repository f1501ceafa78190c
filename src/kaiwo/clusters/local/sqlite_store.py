"""Store the local cluster's state on disk, in one SQLite file.

A transaction is stored as a whole, before its events are published.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.embedded.state import TABLES, Transaction
from kaiwo.model.errors import ClusterError
from kaiwo.model.node import Node
from kaiwo.model.plan import Nomination
from kaiwo.model.planned_start import PlannedStart
from kaiwo.model.queue import Queue
from kaiwo.model.reservation import Reservation

SCHEMA = 1
# The values are msgpack; the other columns are for people who look inside with sqlite3.
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


class _Table(NamedTuple):
    name: str
    type: Any
    keys: tuple[str, ...] = ("name",)
    columns: tuple[str, ...] = ()  # besides the keys and `data`, for people
    values: Callable[[Any], tuple[str, ...]] = lambda value: ()  # of those columns

    @property
    def select(self) -> str:
        return f"SELECT {', '.join(self.keys)}, data FROM {self.name} ORDER BY rowid"

    @property
    def upsert(self) -> str:
        marks = ", ".join("?" * (len(self.keys) + len(self.columns) + 1))
        updates = ", ".join(f"{column} = excluded.{column}" for column in (*self.columns, "data"))
        return f"INSERT INTO {self.name} VALUES ({marks}) ON CONFLICT DO UPDATE SET {updates}"

    @property
    def delete(self) -> str:
        return f"DELETE FROM {self.name} WHERE {' AND '.join(f'{key} = ?' for key in self.keys)}"


_STORED = {  # by the state's own name of the table
    "nodes": _Table("nodes", Node),
    "queues": _Table("queues", Queue),
    "workloads": _Table(
        "workloads",
        TrackedWorkload,
        columns=("state", "queue"),
        values=lambda tracked: (str(tracked.record.state), tracked.workload.queue),
    ),
    "pods": _Table(
        "pods",
        PlacedRun,
        keys=("workload", "name"),
        columns=("node", "phase", "run"),
        values=lambda placement: (placement.pod.node, str(placement.pod.phase), placement.run.id),
    ),
    "runs": _Table("runs", Run, ("id",), ("workload", "pod"), lambda run: (run.workload, run.pod)),
    "nominations": _Table("kept", tuple[Nomination, ...], ("workload",)),
    "planned_starts": _Table("promises", PlannedStart, ("workload",)),
    "reservations": _Table("reservations", Reservation),
}


class Store:
    """Any thread may write, but only one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._explained():
            if not path.exists():
                path.touch(mode=0o600)  # environments may hold secrets
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
            self._db.execute("PRAGMA journal_mode=WAL")
            # With a write-ahead log, NORMAL loses nothing that was committed when the process dies, however it dies:
            # the log is in the page cache. Only a power cut can lose the last moments (never the file's integrity),
            # and then the processes that ran are gone as well. FULL would cost a disk flush per transaction.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint=0")  # `checkpoint` does it, off the event loop
            self._db.execute("PRAGMA busy_timeout=10000")
            self._db.executescript(TABLES_SQL)
        self._check_schema()

    def load(self) -> dict[str, dict[Any, Any]]:
        with self._explained():
            tables = {table: self._read_table(_STORED[table]) for table in TABLES}
        by_end = sorted(tables["workloads"].values(), key=lambda each: (each.record.ended_s, each.record.version))
        tables["workloads"] = {tracked.workload.name: tracked for tracked in by_end}
        return tables

    def save(self, transaction: Transaction) -> None:
        """Raises ClusterError when it could not be stored; then nothing of it is."""
        if not transaction.before:
            return
        with self._transaction() as db:
            for name in TABLES:
                table = _STORED[name]
                deleted, written = [], []
                for key, value in transaction.changed_rows(name):
                    keys = key if isinstance(key, tuple) else (key,)
                    if value is None:
                        deleted.append(keys)
                    else:
                        written.append((*keys, *table.values(value), _encode(value)))
                if deleted:
                    db.executemany(table.delete, deleted)
                if written:
                    db.executemany(table.upsert, written)

    def meta(self, key: str) -> str:
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def set_meta(self, key: str, value: str) -> None:
        with self._transaction() as db:
            db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", (key, value))

    def wants_checkpoint(self) -> bool:
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > CHECKPOINT_BYTES

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file without stopping the writer. Call on another thread."""
        with self._explained(), contextlib.closing(sqlite3.connect(self.path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
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

    def _read_table(self, table: _Table) -> dict[Any, Any]:
        decode, rows = msgspec.msgpack.Decoder(table.type).decode, self._db.execute(table.select)
        return {keys[0] if len(keys) == 1 else tuple(keys): decode(data) for *keys, data in rows}

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
            raise ClusterError(f"{self.path} is damaged ({error}); move it away to start afresh") from error
