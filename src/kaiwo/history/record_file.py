"""Files of records in SQLite: how they are opened, and their problems as errors that name the file.

In:    the tables of a kind of file, and errors of SQLite or of rows that are not what was written.
Out:   connections; ClusterError, or DamagedFileError when it is not only a full disk.
"""

import contextlib
import os
import re
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from kaiwo.model.errors import ClusterError, DamagedFileError

_UNREADABLE = (TypeError, ValueError, IndexError, OverflowError, struct.error, zlib.error, msgspec.MsgspecError)
_TABLE = re.compile(r"CREATE TABLE (\w{1,40})")
_BUSY_MS = 2000  # as long as another connection may keep this one waiting


class RecordFile(NamedTuple):
    """One kind of file, with a write-ahead log; only its owner may read it."""

    what: str  # what it has, in the plural
    format: int
    tables: str
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"  # a power cut may lose the last records; FULL: none

    @contextlib.contextmanager
    def problems(self, path: Path) -> Iterator[None]:
        """What goes wrong with a file of this kind is an error that names it."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # such as a table that is no longer there
                raise DamagedFileError(f"the {self.what} in {path} are damaged: {error}") from error
            # The disk is full, another process writes, or it may not be read.
            raise ClusterError(f"the {self.what} in {path} cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise DamagedFileError(f"the {self.what} in {path} are damaged: {error}") from error
        except _UNREADABLE as error:
            raise DamagedFileError(f"the {self.what} in {path} have a row that cannot be read: {error}") from error

    def open_for_writing(self, path: Path) -> sqlite3.Connection:
        """Make the file when there is none. ClusterError when it is damaged or of another version."""
        with self.problems(path):
            if not path.exists() or not path.stat().st_size:
                self._create(path)
            db = _readable(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
            db.execute(f"PRAGMA synchronous={self.synchronous}")
            db.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
            if (found := db.execute("PRAGMA user_version").fetchone()[0]) != self.format:
                raise ClusterError(f"{path} has format {found}, and this Kaiwo reads {self.format}; move the file away")
            for table in _TABLE.findall(self.tables):  # a file that lost one is damaged
                db.execute(f"SELECT 1 FROM {table} LIMIT 1")
            return db

    def _create(self, path: Path) -> None:
        """Under another name first: whoever reads sees a file with all tables, or none."""
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that the file shrinks; only before the first table
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(f"BEGIN;{self.tables}PRAGMA user_version={self.format};COMMIT;")
        _unlink_logs(path)  # of an empty file that was here before
        os.replace(new, path)

    def open_for_reading(self, path: Path) -> sqlite3.Connection:
        with self.problems(path):
            db = _readable(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False))
            db.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
            return db


class RecordReader:
    """A connection for reading that any thread may use; they take turns."""

    def __init__(self, path: Path, kind: RecordFile) -> None:
        self._path, self._kind = path, kind
        self._db: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self.has_found_damage = False  # who writes the file sets it aside then

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection | None]:
        """None while there is no file."""
        try:
            with self._lock, self._kind.problems(self._path):
                if self._db is None and self._path.exists():
                    self._db = self._kind.open_for_reading(self._path)
                yield self._db
        except DamagedFileError:
            self.has_found_damage = True
            raise


def set_aside(path: Path, now_s: int) -> Path:
    """Move a damaged file away, so that a new one can be made. Returns its new path."""
    kept = path.with_name(f"{path.name}.damaged-{now_s}")
    os.replace(path, kept)
    _unlink_logs(path)
    return kept


def _unlink_logs(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _readable(db: sqlite3.Connection) -> sqlite3.Connection:
    """Text in which a byte was changed is another text, and no error that hides all other rows."""
    db.text_factory = lambda content: content.decode(errors="replace")
    return db
