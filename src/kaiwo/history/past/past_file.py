"""The file of the past of workloads: its tables, and a connection to it.

KAIWO_HOME/past.db   SQLite with a write-ahead log; only its owner may read it

    lives        one submission of a workload: whose it was, how it ended, what it held and used
    happenings   what happened to it, in order
    class_waits  what was first in the way of each class of equal waiting work, since when
    consumption  what each user held and used in each queue, by day
    watched      from when until when a scheduler was there to see it
"""

import sqlite3
from pathlib import Path

from kaiwo.history.record_file import problems_of, readable
from kaiwo.model.errors import ClusterError

FILE = "past.db"
WHAT = "records of past work"
FORMAT = 1
_TABLES = """
CREATE TABLE lives (
    id INTEGER PRIMARY KEY, workload TEXT NOT NULL, number INTEGER NOT NULL, submitted_s INTEGER NOT NULL,
    queue TEXT NOT NULL, user TEXT NOT NULL, gpu_milli INTEGER NOT NULL, started_s INTEGER NOT NULL DEFAULT 0,
    ended_s INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT '', attempts INTEGER NOT NULL DEFAULT 0,
    exit_code INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL DEFAULT '', evictions INTEGER NOT NULL DEFAULT 0,
    held_milli_s INTEGER NOT NULL DEFAULT 0, known_milli_s INTEGER NOT NULL DEFAULT 0,
    used_milli_s INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX life_keys ON lives (workload, number);
CREATE INDEX life_ends ON lives (ended_s, id);
CREATE TABLE happenings (id INTEGER PRIMARY KEY, life INTEGER NOT NULL, at_s INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX happenings_of ON happenings (life);
CREATE TABLE class_waits (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, shape TEXT NOT NULL, at_s INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX waits_of ON class_waits (queue, shape, at_s);
CREATE TABLE consumption (
    day INTEGER NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL, held_milli_s INTEGER NOT NULL DEFAULT 0,
    known_milli_s INTEGER NOT NULL DEFAULT 0, used_milli_s INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (day, queue, user)
) WITHOUT ROWID;
CREATE TABLE watched (begins_s INTEGER NOT NULL, until_s INTEGER NOT NULL);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Make the file when there is none. ClusterError when it is damaged or of another version."""
    if not path.exists():
        path.touch(mode=0o600)
    with problems_of(path, WHAT):
        db = readable(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that the file shrinks; only before the first table
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last moments, never the file
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={FORMAT};COMMIT;")
        elif (found := db.execute("PRAGMA user_version").fetchone()[0]) != FORMAT:
            raise ClusterError(f"{path} has format {found}, and this Kaiwo reads {FORMAT}; move the file away")
        db.execute("SELECT count(*) FROM watched")
        return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    with problems_of(path, WHAT):
        db = readable(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False))
        db.execute("PRAGMA busy_timeout=2000")
        return db
