"""Check, back up and restore state.db, the file with the local cluster's state.

A damaged, emptied or lost file is never started on in silence. Every refusal names the file and the way out. What was
damaged is kept beside the restored file.
"""

import contextlib
import datetime
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kaiwo.clusters.kept_files import keep_files, restore_files
from kaiwo.clusters.local.stored_tables import STORED, TABLES_SQL, StoredTable, decode_rows, encode
from kaiwo.model.errors import ClusterError, ConfigError, NotFoundError

Report = Callable[[str], None]
BACKUP_NAME = "state-%Y%m%dT%H%M%S.db"
BACKUPS_KEPT = 3  # of those that Kaiwo makes by itself
FIRST_REPORT_S, REPORT_EVERY_S = 1.0, 1.0
STEPS_PER_ROW = 6  # of SQLite's machine, in a quick check: for the percentage only
HANDLER_STEPS = 20_000
MARK_WORD, MARK_BYTES = b"changes ", 19  # `changes 0000000042`, as long each time
MODULUS = 1 << 31  # what SQLite's user_version can count to
REPLACED = ("pods", "kept", "promises", "recoveries")  # tables of which old rows are worse than none


class Restored(NamedTuple):
    backup: Path | None  # None: there was none
    saved_rows: int  # rows of the damaged file that could still be read
    set_aside: Path | None  # where the old file is now
    files: Sequence[str] = ()  # other files of the home folder that came back


def check_file(path: Path, report: Report = lambda line: None) -> str:
    """What is wrong with a state file; empty: nothing. A file of 1 GB takes about two seconds."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            _report_progress(db, path, report)
            found = [str(row[0]) for row in db.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if not _is_damage(error):
            raise
        return str(error)
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == ["ok"] else "; ".join(line.strip() for line in found)


def is_blank(path: Path) -> bool:
    """The file does not exist, or no Kaiwo has written its state into it."""
    if not _size(path):
        return True  # whatever its log says: SQLite deletes the log of an empty file
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall()
    except sqlite3.DatabaseError:
        return False  # damaged, or not ours: the check says so


def refuse_damaged(path: Path, damage: str) -> ClusterError:
    backup = latest_backup(path.parent)
    if backup is not None:
        way_out = f"restore it from the backup of {_time_of(backup)} and from what is still readable: kaiwo restore"
    else:
        way_out = "save what is still readable: kaiwo restore"
    return ClusterError(f"{path} is damaged ({damage}); {way_out}")


def check_not_lost(path: Path) -> None:
    """Refuse to begin with nothing where there was a state before."""
    backup, log = latest_backup(path.parent), _log_of(path)
    fact = "is empty" if path.exists() else "is missing"
    if not _size(path) and _size(log):
        raise ClusterError(
            f"{path} {fact}, but its log {log} is there; save what it says: kaiwo restore; "
            f"or, to begin without it, move {log} away"
        )
    if backup is not None and is_blank(path):
        raise ClusterError(
            f"{path} {fact}, but there is a backup of {_time_of(backup)}; restore it: kaiwo restore; "
            f"or, to begin without it, move {backup.parent} away"
        )


def check_not_rolled_back(path: Path) -> None:
    """Refuse a file that lacks changes which were flushed: its log was cut, or it is an old copy.

    SQLite takes a log that was cut for one whose writer died, and goes on from there in silence.
    """
    lost = _lost_changes(path)
    if lost:
        raise ClusterError(
            f"{path} has lost its last changes ({lost}); bring back what is known: kaiwo restore; or, if you put this "
            f"file there yourself, remove {_mark_of(path)}"
        )


def changes_in(db: sqlite3.Connection) -> int:
    """How many transactions a state file has had, modulo 2^31."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def open_mark(path: Path) -> int | None:
    """A file descriptor for `write_mark`; None: the disk is full, and nothing is marked."""
    with contextlib.suppress(OSError):
        return os.open(_mark_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return None


def write_mark(mark: int, changes: int) -> None:
    """Say that the state file was flushed up to this change. Call it after the flush.

    The mark itself is not flushed: after a power cut an older one is true as well.
    """
    with contextlib.suppress(OSError):
        os.pwrite(mark, b"%s%010d\n" % (MARK_WORD, changes), 0)
        os.ftruncate(mark, MARK_BYTES)  # a mark of an earlier version was longer


def remove_mark(path: Path) -> None:
    """Before the file is replaced on purpose."""
    _mark_of(path).unlink(missing_ok=True)


def back_up(source: Path, target: Path) -> None:
    """Copy the state file, also while Kaiwo writes to it. The target appears as a whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        temporary.touch(mode=0o600)  # environments may hold secrets
        with (
            contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as db,
            contextlib.closing(sqlite3.connect(temporary)) as copy,
        ):
            db.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            keep_files(source.parent, copy)
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        temporary.unlink(missing_ok=True)
        raise ClusterError(f"{source} cannot be copied to {target} ({error}); check the disk's space") from error


def back_up_in(home: Path) -> Path:
    """A backup under its own name in the home folder; the oldest of those are removed."""
    target = home / "backups" / _next_name(latest_backup(home))
    back_up(home / "state.db", target)
    for old in _backups(home)[:-BACKUPS_KEPT]:
        old.unlink(missing_ok=True)
    return target


def latest_backup(home: Path) -> Path | None:
    found = _backups(home)
    return found[-1] if found else None


def restore(home: Path, given: Path | None = None) -> Restored:
    """Make a new state file from a backup (default: the latest), and from what the old file still says.

    Rows of the old file are newer than those of the backup, so they win, unless the old file ends before the backup was
    made. If only the log of the old file is left, it is read without the file. With a `given` backup the old file is
    not read. No Kaiwo may use the home folder meanwhile.
    """
    state = home / "state.db"
    backup = given or latest_backup(home)
    if given is not None and not given.exists():
        raise NotFoundError(f"there is no file {given}; list the backups with: ls {home / 'backups'}")
    has_log_alone = not _size(state) and _size(_log_of(state)) > 0
    if backup is None and is_blank(state) and not has_log_alone:
        raise NotFoundError(f"there is no backup in {home / 'backups'}, and {state} has nothing to save")
    if backup is not None and (damage := check_file(backup) or ("it is empty" if is_blank(backup) else "")):
        raise ConfigError(f"{backup} is not a usable backup ({damage}); name another: kaiwo restore FILE")
    fresh = home / f".state.db.restored.{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    saved, files, suffix = 0, list[str](), _aside_suffix()
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as db:
        if backup is not None:
            with contextlib.closing(sqlite3.connect(f"file:{backup}?mode=ro", uri=True)) as source:
                source.backup(db)
            files = restore_files(home, db, given is not None, suffix)
        if given is None and has_log_alone:
            _write_blank_file(state)
        if given is None and not is_blank(state) and not _is_older(state, backup):
            saved = _overlay(state, db)
        db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        # The next start then also reads back runs that began or ended after the backup.
        db.execute("INSERT INTO meta VALUES ('restored', '1') ON CONFLICT DO UPDATE SET value = excluded.value")
    _sync(fresh)
    set_aside = _set_aside(state, suffix)
    remove_mark(state)
    fresh.replace(state)
    _sync(home)
    return Restored(backup, saved, set_aside, files)


def _write_blank_file(state: Path) -> None:
    """A file without tables in place of the lost one: SQLite then reads the pages that the log has."""
    blank = state.with_name(f".{state.name}.blank.{os.getpid()}")
    blank.unlink(missing_ok=True)
    blank.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(blank)) as db:
        db.execute("PRAGMA journal_mode=WAL")
    blank.replace(state)
    state.with_name(state.name + "-shm").unlink(missing_ok=True)  # it is made again from the log


def _is_older(state: Path, backup: Path | None) -> bool:
    """The file has lost its last changes, and the backup has some of them."""
    if backup is None or not _lost_changes(state):
        return False
    ends_ms, kept_ms = _clock_ms_of(state), _clock_ms_of(backup)
    if ends_ms is not None and kept_ms is not None and ends_ms != kept_ms:
        return ends_ms < kept_ms
    return _is_ahead(_changes_of(backup), _changes_of(state))


def _overlay(damaged: Path, db: sqlite3.Connection) -> int:
    """Copy every readable row of a damaged file; returns how many there were.

    Rows of the backup that are not found there stay: nobody can say whether they were deleted or are lost. But a pod of
    the backup may have ended long ago, and the run folders know better, so of the pods only those found are kept.
    """
    saved = 0
    db.executescript(TABLES_SQL)
    with contextlib.closing(sqlite3.connect(damaged)) as source:
        source.text_factory = lambda text: text.decode(errors="replace")  # a damaged name is not that of its value
        for table in STORED.values():
            found = _readable_rows(source, table)
            if found and table.name in REPLACED:
                db.execute(f"DELETE FROM {table.name}")
            for key, value in found.items():
                keys = key if isinstance(key, tuple) else (key,)
                db.execute(table.upsert, (*keys, *table.values(value), encode(value)))
            saved += len(found)
        with contextlib.suppress(sqlite3.DatabaseError):
            for key, value in source.execute("SELECT key, value FROM meta"):
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
    return saved


def _readable_rows(source: sqlite3.Connection, table: StoredTable) -> dict[Any, Any]:
    """The rows of a table that can be read, as values; around a damaged page the others are found by their row ids."""
    query = f"SELECT rowid, {', '.join(table.keys)}, data FROM {table.name} WHERE rowid > ? ORDER BY rowid"
    rows: list[list[Any]] = []
    after, step = -1, 1
    while step < 1 << 40:
        try:
            for rowid, *row in source.execute(query, (after,)):
                rows.append(row)
                after, step = max(after, rowid), 1
            break
        except sqlite3.DatabaseError:
            after, step = after + step, step * 2
    found, _ = decode_rows(table, (row for row in rows if all(value is not None for value in row)))
    return found


def _aside_suffix() -> str:
    return datetime.datetime.now(datetime.UTC).strftime(".before-restore-%Y%m%dT%H%M%S")


def _set_aside(state: Path, suffix: str) -> Path | None:
    if not state.exists():
        return None
    target = state.with_name(state.name + suffix)
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            state.with_name(state.name + suffix).replace(target.with_name(target.name + suffix))
    return target


def _report_progress(db: sqlite3.Connection, path: Path, report: Report) -> None:
    """Call `report` about once a second while a long check runs."""
    rows = 0
    for (table,) in db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%WITHOUT ROWID%'"
    ):
        rows += db.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 0
    total = max(1, rows * STEPS_PER_ROW)
    began = due = time.monotonic() + FIRST_REPORT_S
    steps = 0
    size_mb = path.stat().st_size / 1e6

    def count_steps() -> int:
        nonlocal steps, due
        steps += HANDLER_STEPS
        if (now := time.monotonic()) >= due:
            due = now + REPORT_EVERY_S
            percent = min(99, 100 * steps // total)
            report(f"checking {path} ({size_mb:,.0f} MB): {percent} %, {now - began + FIRST_REPORT_S:.0f} s")
        return 0

    db.set_progress_handler(count_steps, HANDLER_STEPS)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size(path: Path) -> int:
    """In bytes; 0: it is empty or missing."""
    return path.stat().st_size if path.exists() else 0


def _mark_of(path: Path) -> Path:
    return path.with_name("state.mark")


def _lost_changes(path: Path) -> str:
    """What a file lacks of what its mark says; empty: nothing, or there is no mark."""
    text = b""
    with contextlib.suppress(OSError):
        text = _mark_of(path).read_bytes()[:MARK_BYTES]
    number = text.removeprefix(MARK_WORD).strip()
    if not number.isdigit():
        return ""
    if text.startswith(MARK_WORD):
        stored, marked = _changes_of(path), int(number) % MODULUS
        return f"{(marked - stored) % MODULUS} of them" if stored is not None and _is_ahead(marked, stored) else ""
    # Earlier versions wrote once a minute until when the file was flushed, by its own clock.
    stored_ms, marked_ms = _clock_ms_of(path), int(number)
    if stored_ms is None or stored_ms >= marked_ms:
        return ""
    return f"it ends at {_as_time(stored_ms)}, and was stored until {_as_time(marked_ms)}"


def _is_ahead(one: int | None, other: int | None) -> bool:
    """Whether one count of changes is larger than another; the counts begin again after 2^31."""
    return one is not None and other is not None and 0 < (one - other) % MODULUS < MODULUS // 2


def _changes_of(path: Path) -> int | None:
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(path)) as db:
        return changes_in(db)
    return None


def _clock_ms_of(path: Path) -> int | None:
    """When a state file was last written, by its own clock; None: it does not say."""
    with contextlib.suppress(sqlite3.DatabaseError, ValueError):
        with contextlib.closing(sqlite3.connect(path)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'clock_ms'").fetchone()
        return int(row[0]) if row else None
    return None


def _as_time(clock_ms: int) -> str:
    with contextlib.suppress(OverflowError, ValueError, OSError):  # virtual time may be far ahead
        return datetime.datetime.fromtimestamp(clock_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"second {clock_ms // 1000}"


def _is_damage(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _backups(home: Path) -> list[Path]:
    """The oldest first, in the order of their names."""
    return sorted((home / "backups").glob("state-*.db"))


def _next_name(last: Path | None) -> str:
    """The time, but after that of the last backup: when the clock was set back, the new one is still the latest."""
    now = datetime.datetime.now(datetime.UTC)
    with contextlib.suppress(ValueError, OverflowError):
        if last is not None:
            last_at = datetime.datetime.strptime(last.name, BACKUP_NAME).replace(tzinfo=datetime.UTC)
            now = max(now, last_at + datetime.timedelta(seconds=1))
    return now.strftime(BACKUP_NAME)


def _time_of(backup: Path) -> str:
    at = datetime.datetime.fromtimestamp(backup.stat().st_mtime, datetime.UTC)
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
