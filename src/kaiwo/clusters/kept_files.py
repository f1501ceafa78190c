"""The other files of the home folder that a backup has beside the state: in a table of its own in the same file.

In:    the policy, the hashed tokens, and the file with alerts and silences.   Out: the same files, as they were.
The latest backup is also for repair: then a file comes back only where there is none.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

FILES, DATABASES = ("policy.json", "tokens.json"), ("alerts.db",)
TABLE = "kept_files"


def keep_files(home: Path, copy: sqlite3.Connection) -> None:
    """Put them into a copy of the state."""
    copy.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID")
    for name in (*FILES, *DATABASES):
        data = _read(home / name)
        if data is not None:
            copy.execute(f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?)", (name, data))
    copy.commit()


def restore_files(home: Path, db: sqlite3.Connection, may_replace: bool, suffix: str) -> list[str]:
    """Write them into the home folder, and drop the table. Returns the names of those that were written.

    `suffix`: what is added to the name of a file that is replaced.
    """
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (TABLE,)).fetchall():
        return []
    written = []
    for name, data in db.execute(f"SELECT name, data FROM {TABLE} ORDER BY name").fetchall():
        if name in (*FILES, *DATABASES) and (may_replace or not (home / name).exists()):
            _write(home / name, data, suffix)
            written.append(name)
    db.execute(f"DROP TABLE {TABLE}")
    return written


def _read(path: Path) -> bytes | None:
    """None: there is none, or it is damaged: then a backup of it helps nobody."""
    if not path.exists():
        return None
    if path.name in FILES:
        return path.read_bytes()
    try:
        with (
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db,
            contextlib.closing(sqlite3.connect(":memory:")) as copy,
        ):
            db.backup(copy)
            return copy.serialize()
    except sqlite3.DatabaseError:
        return None


def _write(path: Path, data: bytes, suffix: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    for log in ("-wal", "-shm", ""):  # a log of the file that was there would be read with the new one
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + log).replace(path.with_name(path.name + suffix + log))
    temporary.replace(path)
