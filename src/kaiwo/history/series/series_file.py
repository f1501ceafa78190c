"""The file of the time series: its tables, and a connection to it.

KAIWO_HOME/series.db   SQLite with a write-ahead log; only its owner may read it

    subjects   which position a name has among those of its kind
    measures   the number of each measure
    frames     one sample of all subjects, until its block is complete
    blocks     the samples of up to PART subjects over one block of time
    rolled_up  up to which time the samples of a resolution are made from those of the finer one
"""

import sqlite3
from pathlib import Path

from kaiwo.history.record_file import problems_of, readable
from kaiwo.model.errors import ClusterError

FILE = "series.db"
WHAT = "time series"
PART = 256  # subjects of one block
FORMAT = 1
_TABLES = """
CREATE TABLE subjects (kind TEXT, position INTEGER, name TEXT, seen_s INTEGER, PRIMARY KEY (kind, position))
    WITHOUT ROWID;
CREATE UNIQUE INDEX subject_names ON subjects (kind, name);
CREATE TABLE measures (number INTEGER PRIMARY KEY, kind TEXT, name TEXT, UNIQUE (kind, name));
CREATE TABLE frames (resolution INTEGER, statistic INTEGER, measure INTEGER, time_s INTEGER, data BLOB,
    PRIMARY KEY (resolution, statistic, measure, time_s)) WITHOUT ROWID;
CREATE TABLE blocks (resolution INTEGER, statistic INTEGER, measure INTEGER, part INTEGER, begins_s INTEGER, data BLOB,
    PRIMARY KEY (resolution, statistic, measure, part, begins_s)) WITHOUT ROWID;
CREATE TABLE rolled_up (resolution INTEGER PRIMARY KEY, until_s INTEGER);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Make the file when there is none. ClusterError when it is damaged or of another version."""
    is_new = not path.exists()
    if is_new:
        path.touch(mode=0o600)
    with problems_of(path, WHAT):
        db = readable(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that the file shrinks; only before the first table
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last samples, never the file
        if is_new or not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={FORMAT};COMMIT;")
        elif (found := db.execute("PRAGMA user_version").fetchone()[0]) != FORMAT:
            raise ClusterError(f"{path} has format {found}, and this Kaiwo reads {FORMAT}; move the file away")
        db.execute("SELECT count(*) FROM subjects")
        return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    with problems_of(path, WHAT):
        db = readable(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False))
        db.execute("PRAGMA busy_timeout=2000")
        return db
