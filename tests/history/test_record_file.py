"""A file of records appears with all of its tables: whoever reads while it is made finds nothing, and no damage."""

import threading
from pathlib import Path

import pytest

from kaiwo.history.record_file import RecordFile, RecordReader, set_aside
from kaiwo.model.errors import ClusterError, DamagedFileError

NOTES = RecordFile("notes", 1, "CREATE TABLE notes (text TEXT); CREATE TABLE tags (name TEXT);")


def read(reader: RecordReader) -> list[str] | None:
    with reader.connection() as db:
        return None if db is None else [text for (text,) in db.execute("SELECT text FROM notes")]


def keep_reading(path: Path, is_made: threading.Event, problems: list[ClusterError]) -> None:
    while not is_made.is_set():
        reader = RecordReader(path, NOTES)
        try:
            read(reader)
        except ClusterError as error:
            problems.append(error)
        reader.close()


def test_who_reads_while_a_file_is_made_finds_no_damage(tmp_path: Path) -> None:
    problems: list[ClusterError] = []
    for number in range(20):
        path, is_made = tmp_path / f"{number}.db", threading.Event()
        thread = threading.Thread(target=keep_reading, args=(path, is_made, problems))
        thread.start()
        NOTES.open_for_writing(path).close()
        is_made.set()
        thread.join()
    assert problems == []


def test_an_empty_file_is_made_anew_and_its_old_log_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    other = NOTES.open_for_writing(tmp_path / "other.db")
    other.execute("INSERT INTO notes VALUES ('of another file')")
    path.touch()
    path.with_name("notes.db-wal").write_bytes((tmp_path / "other.db-wal").read_bytes())
    db = NOTES.open_for_writing(path)
    assert read(RecordReader(path, NOTES)) == []
    assert path.stat().st_mode & 0o777 == 0o600
    db.close()


def test_a_file_that_lost_a_table_is_damaged_and_one_of_another_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    db = NOTES.open_for_writing(path)
    db.execute("DROP TABLE tags")
    db.close()
    with pytest.raises(DamagedFileError, match=r"notes in .*notes\.db are damaged"):
        NOTES.open_for_writing(path)
    set_aside(path, 5)
    NOTES.open_for_writing(path).close()
    with pytest.raises(ClusterError, match="has format 1, and this Kaiwo reads 2; move the file away"):
        NOTES._replace(format=2).open_for_writing(path)
    assert [each.name for each in tmp_path.glob("*damaged*")] == ["notes.db.damaged-5"]


def test_there_is_nothing_to_read_without_a_file(tmp_path: Path) -> None:
    reader = RecordReader(tmp_path / "none.db", NOTES)
    assert read(reader) is None
    assert not reader.has_found_damage
