"""The file of the time series: its tables, and what it is called.

KAIWO_HOME/series.db   SQLite with a write-ahead log; only its owner may read it

    subjects   which position a name has among those of its kind
    measures   the number of each measure
    frames     one sample of all subjects, until its block is complete
    blocks     the samples of up to PART subjects over one block of time
    rolled_up  up to which time the samples of a resolution are made from those of the finer one
"""

from kaiwo.history.record_file import RecordFile

FILE = "series.db"
PART = 256  # subjects of one block
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
SERIES_FILE = RecordFile("time series", 1, _TABLES)
