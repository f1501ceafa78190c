"""The file of the past of workloads: its tables, and what it is called.

KAIWO_HOME/past.db   SQLite with a write-ahead log; only its owner may read it

    lives        one submission of a workload: whose it was, how it ended, what it held and used
    happenings   what happened to it, in order
    class_waits  what was first in the way of each class of equal waiting work, since when
    consumption  what each user held and used in each queue, by day
    watched      from when until when a scheduler was there to see it
"""

from kaiwo.history.record_file import RecordFile

FILE = "past.db"
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
PAST_FILE = RecordFile("records of past work", 1, _TABLES)
