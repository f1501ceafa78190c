"""Store the local cluster's state on disk, in one SQLite file.

A transaction is stored as a whole, before its events are published.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kaiwo.clusters.embedded.state import TABLES, Transaction
from kaiwo.clusters.local.state_file import (
    MODULUS,
    REPLACED,
    Report,
    changes_in,
    check_file,
    check_not_lost,
    check_not_rolled_back,
    is_blank,
    latest_backup,
    open_mark,
    refuse_damaged,
    remove_mark,
    write_mark,
)
from kaiwo.clusters.local.stored_tables import STORED, TABLES_SQL, StoredTable, decode_rows, encode
from kaiwo.model.errors import ClusterError

SCHEMA = 1
CHECKPOINT_BYTES = 8 << 20

SET_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
NO_META: Mapping[str, str] = {}


class Store:
    """Any thread may write, but only one at a time. `sync` may run on another one meanwhile."""

    def __init__(self, path: Path, report: Report = lambda line: None) -> None:
        self.path = path
        self.set_aside: list[str] = []  # rows that could not be read, by name
        with self._explained():
            check_not_lost(path)
            self.is_new = is_blank(path)
            if not path.exists():
                path.touch(mode=0o600)  # environments may hold secrets
            elif damage := check_file(path, report):
                raise refuse_damaged(path, damage)
            if self.is_new:
                remove_mark(path)  # of a file that is lost as a whole
            check_not_rolled_back(path)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
            self._db.execute("PRAGMA journal_mode=WAL")
            # With a write-ahead log, NORMAL loses nothing that was committed when the process dies, however it dies:
            # the log is in the page cache. A power cut could lose the last moments, so `sync` flushes the log before
            # anybody is told. FULL would flush once per transaction; here one flush serves all that are waiting.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA wal_autocheckpoint=0")  # `checkpoint` does it, off the event loop
            self._db.execute("PRAGMA busy_timeout=10000")
            self._db.executescript(TABLES_SQL)
            self._changes = changes_in(self._db)
            self._mark = open_mark(path)
        self._check_schema()
        with self._explained():
            self._log = os.open(self._wal, os.O_RDONLY | os.O_CLOEXEC)  # SQLite takes no locks on this file

    def load(self) -> dict[str, dict[Any, Any]]:
        """All rows. One that cannot be read, or whose workload could not, is set aside in a table of its own."""
        with self._explained():
            tables = {table: self._read_table(STORED[table]) for table in TABLES}
        by_end = sorted(tables["workloads"].values(), key=lambda each: (each.record.ended_s, each.record.version))
        tables["workloads"] = {tracked.workload.name: tracked for tracked in by_end}
        for key in [key for key in tables["pods"] if key[0] not in tables["workloads"]]:
            del tables["pods"][key]
            self._set_aside(STORED["pods"], key, f"workload {key[0]} is not known")
        return tables

    def save(self, transaction: Transaction, meta: Mapping[str, str] = NO_META) -> None:
        """Raises ClusterError when it could not be stored; then nothing of it is."""
        if not transaction.before and not meta:
            return
        with self._transaction() as db:
            db.executemany(SET_META, meta.items())
            for name in TABLES:
                table = STORED[name]
                deleted, written = [], []
                for key, value in transaction.changed_rows(name):
                    keys = key if isinstance(key, tuple) else (key,)
                    if value is None:
                        deleted.append(keys)
                    else:
                        written.append((*keys, *table.values(value), encode(value)))
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
            db.execute(SET_META, (key, value))

    def sync(self) -> None:
        """Everything that was committed before this call survives a power cut."""
        changes = self._changes
        with self._explained():
            os.fdatasync(self._log)
        if self._mark is not None:
            write_mark(self._mark, changes)

    def wants_checkpoint(self) -> bool:
        return self._wal.exists() and self._wal.stat().st_size > CHECKPOINT_BYTES

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file without stopping the writer. Call on another thread."""
        with self._explained(), contextlib.closing(sqlite3.connect(self.path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        with self._explained():
            self._db.close()
            os.close(self._log)
            if self._mark is not None:
                os.close(self._mark)

    @property
    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _check_schema(self) -> None:
        found = self.meta("schema")
        if found and not found.isdecimal():
            raise refuse_damaged(self.path, f"its schema is {found!r}")
        if found and int(found) > SCHEMA:
            raise ClusterError(
                f"{self.path} was written by a newer Kaiwo (schema {found}, this one knows {SCHEMA}); "
                "upgrade Kaiwo, or set KAIWO_HOME to another folder"
            )
        if not found:
            self.set_meta("schema", str(SCHEMA))

    def _read_table(self, table: StoredTable) -> dict[Any, Any]:
        found, bad = decode_rows(table, self._db.execute(table.select))
        for key, row in bad.items():
            keys = key if isinstance(key, tuple) else (key,)
            self._set_aside(table, keys, row.why)
            replacement = self._from_backup(table, keys)
            if replacement is not None:
                found[key] = replacement
            elif row.value is not None and table.key_of is not None:
                key, replacement = table.key_of(row.value), row.value  # more likely its key is damaged than its value
                replacement = found.setdefault(key, replacement)
            if replacement is not None:
                self._write_row(table, key, replacement)
            elif table.name not in REPLACED:
                # Its key may be damaged, too: whatever the backup has and nobody else is takes its place.
                for missing, value in self._backup_rows(table).items():
                    if missing not in found and missing not in bad:
                        found[missing] = value
                        self._write_row(table, missing, value)
        return found

    def _write_row(self, table: StoredTable, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        with self._transaction() as db:
            db.execute(table.upsert, (*keys, *table.values(value), encode(value)))

    def _from_backup(self, table: StoredTable, keys: Sequence[Any]) -> Any:
        """The same row as it was in the latest backup, if it was there."""
        where = " AND ".join(f"{key} = ?" for key in table.keys)
        return next(iter(self._backup_rows(table, f"WHERE {where}", tuple(keys)).values()), None)

    def _backup_rows(self, table: StoredTable, where: str = "", values: Sequence[Any] = ()) -> dict[Any, Any]:
        backup = latest_backup(self.path.parent)
        if backup is None:
            return {}
        query = f"SELECT {', '.join(table.keys)}, data FROM {table.name} {where}"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{backup}?mode=ro", uri=True)) as db:
                found, _ = decode_rows(table, db.execute(query, tuple(values)))
        except sqlite3.Error:
            return {}
        return found

    def _set_aside(self, table: StoredTable, keys: Sequence[Any], why: str) -> None:
        """Move a row out of the way, so that it is not lost and all others are read."""
        name = "/".join(map(str, keys))
        self.set_aside.append(f"{table.name} {name}")
        where = " AND ".join(f"{key} = ?" for key in table.keys)
        with self._transaction() as db:
            db.execute(
                f"INSERT INTO set_aside SELECT datetime(), ?, ?, ?, data FROM {table.name} WHERE {where}",
                (table.name, name, why, *keys),
            )
            db.execute(table.delete, tuple(keys))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                changes = (self._changes + 1) % MODULUS
                self._db.execute(f"PRAGMA user_version = {changes}")
                self._db.execute("COMMIT")
                self._changes = changes
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            if "Could not decode to UTF-8" in str(error):  # a damaged name; Python has no code for this
                raise refuse_damaged(self.path, "a name is not text") from error
            raise ClusterError(
                f"{self.path} cannot be used ({error}); check the disk's space and permissions"
            ) from error
        except sqlite3.DatabaseError as error:
            raise refuse_damaged(self.path, str(error)) from error
