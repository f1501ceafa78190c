"""Files of records in SQLite: their problems as errors that name the file, and damage told from a full disk.

In:    errors of SQLite, and of rows that are not what was written.   Out: ClusterError, or DamagedFileError.
"""

import contextlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kaiwo.model.errors import ClusterError, DamagedFileError

_UNREADABLE = (TypeError, ValueError, IndexError, OverflowError, struct.error, zlib.error, msgspec.MsgspecError)


@contextlib.contextmanager
def problems_of(path: Path, what: str) -> Iterator[None]:
    """`what`: what the file has, in the plural."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # such as a table that is no longer there
            raise DamagedFileError(f"the {what} in {path} are damaged: {error}") from error
        # The disk is full, another process writes, or it may not be read.
        raise ClusterError(f"the {what} in {path} cannot be used: {error}") from error
    except sqlite3.Error as error:
        raise DamagedFileError(f"the {what} in {path} are damaged: {error}") from error
    except _UNREADABLE as error:
        raise DamagedFileError(f"the {what} in {path} have a row that cannot be read: {error}") from error


def readable(db: sqlite3.Connection) -> sqlite3.Connection:
    """Text in which a byte was changed is another text, and no error that hides all other rows."""
    db.text_factory = lambda content: content.decode(errors="replace")
    return db


def set_aside(path: Path, now_s: int) -> Path:
    """Move a damaged file away, so that a new one can be made. Returns its new path."""
    kept = path.with_name(f"{path.name}.damaged-{now_s}")
    os.replace(path, kept)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return kept
