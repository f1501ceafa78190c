"""Whatever happens to the files, the journal opens, says what is lost, keeps the rest, and goes on."""

import random
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from kaiwo.history import Base, Cycle, Entry, Journal, JournalReader
from kaiwo.history.journal_encoding import FrameKind, append_frame
from kaiwo.model.errors import ClusterError, NotFoundError
from tests.history.sample_journals import check, cycle, segments, tell


def numbers_in(journal: JournalReader) -> list[int]:
    return [head.number for head in reversed(journal.cycles())]


def assert_goes_on(folder: Path) -> None:
    """Opened for writing it takes new cycles, and everything it lists can be rebuilt."""
    with Journal(folder) as journal:
        assert journal.wants_base
        number = journal.next_number
        story = tell(journal, [number])
        assert list(journal.entries_until(number)) == story
        for head in journal.cycles():
            *_, last = journal.entries_until(head.number)
            assert isinstance(last, Cycle)
            assert last.head == head


@pytest.fixture
def told(tmp_path: Path) -> tuple[Path, list[Entry], list[Entry]]:
    """Two segments: cycles 1 to 3, then 4 to 6."""
    with Journal(tmp_path / "told") as journal:
        return tmp_path / "told", tell(journal, [1, 2, 3]), tell(journal, [4, 5, 6])


Told = tuple[Path, list[Entry], list[Entry]]
OTHER_FORMAT = struct.pack("<8sQQ", b"kaiwo-j2", 3, 6)  # the beginning of a header


def test_a_tail_torn_at_any_byte_loses_only_the_last_entry(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        story = tell(journal, [1, 2])
        before = segments(tmp_path)[0].stat().st_size
        journal.cycle(cycle(3))
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    for cut in range(before, len(whole)):
        path.write_bytes(whole[:cut])
        reader = JournalReader(tmp_path)
        assert reader.newest == 2
        assert list(reader.entries_until(2)) == story
        is_between_frames = cut == reader._segments[0].end
        assert bool(reader.notes) != is_between_frames
    assert_goes_on(tmp_path)


def test_a_new_segment_torn_at_any_byte_leaves_the_others(told: Told) -> None:
    folder, first, second = told
    newest = segments(folder)[-1]
    whole = newest.read_bytes()
    seen = set()
    for cut in range(len(whole)):
        newest.write_bytes(whole[:cut])
        reader = JournalReader(folder)
        seen.add(reader.newest)
        assert list(reader.entries_until(3)) == first
        for number in range(4, reader.newest + 1):
            assert list(reader.entries_until(number)) == second[: 1 + 2 * (number - 3)]
    assert seen == {3, 4, 5}
    newest.write_bytes(whole[:100])
    assert_goes_on(folder)


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 5000, b"\xff" * 9, b"kaiwo" * 100])
def test_garbage_at_the_end_is_cut_off_with_a_note(told: Told, garbage: bytes) -> None:
    folder, _, story = told
    with segments(folder)[-1].open("ab") as file:
        file.write(garbage)
    with Journal(folder) as journal:
        assert journal.newest == 6
        assert list(journal.entries_until(6)) == story
        assert f"after cycle 6: the {len(garbage)} bytes from there on are lost" in journal.notes[0]
    assert_goes_on(folder)


def test_a_changed_byte_anywhere_is_never_believed(told: Told, tmp_path: Path, test_size: int) -> None:
    folder, first, second = told
    truth = {3: first, 6: second}
    draw = random.Random(2)
    for turn in range(200 * test_size):
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(folder, copy)
        path = draw.choice(segments(copy))
        data = bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        reader = JournalReader(copy)
        assert len(check(reader)) == 1
        numbers = numbers_in(reader)
        assert len(numbers) >= 3
        for number in numbers:
            story = truth[3 if number <= 3 else 6]
            assert list(reader.entries_until(number)) == story[: 1 + 2 * (number if number <= 3 else number - 3)]
        if turn % 20 == 0:
            assert_goes_on(copy)
        shutil.rmtree(copy)


def test_a_run_of_garbage_anywhere_is_never_believed(told: Told, test_size: int) -> None:
    folder, *_ = told
    path = segments(folder)[-1]
    whole = path.read_bytes()
    draw = random.Random(3)
    for _ in range(100 * test_size):
        start, length = draw.randrange(len(whole)), draw.randrange(1, 300)
        path.write_bytes(whole[:start] + draw.randbytes(length) + whole[start + length :])
        reader = JournalReader(folder)
        assert check(reader)
        for head in reader.cycles():
            *_, last = reader.entries_until(head.number)
            assert isinstance(last, Cycle)
            assert last == cycle(head.number)


def test_a_missing_segment_is_noted_and_its_neighbours_stay(told: Told) -> None:
    folder, first, _ = told
    with Journal(folder) as journal:
        third = tell(journal, [7, 8])
    segments(folder)[1].unlink()
    with Journal(folder) as journal:
        assert journal.notes == ("segment 2 is missing, with cycles up to 6",)
        assert numbers_in(journal) == [1, 2, 3, 7, 8]
        assert list(journal.entries_until(3)) == first
        assert list(journal.entries_until(8)) == third
        with pytest.raises(NotFoundError):
            journal.cycle_at(5)
    assert_goes_on(folder)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (b"", "is empty"),
        (b"kaiwo", "no readable header"),
        (b"x" * 500, "no readable header"),
        (OTHER_FORMAT + zlib.crc32(OTHER_FORMAT).to_bytes(4, "little"), "written by another version of Kaiwo"),
        (OTHER_FORMAT + bytes(4), "no readable header"),
    ],
)
def test_a_file_that_is_no_segment_is_noted(told: Told, content: bytes, note: str) -> None:
    folder, _, second = told
    (folder / "00000003.journal").write_bytes(content)
    with Journal(folder) as journal:
        assert note in journal.notes[0]
        assert journal.next_number == 7
        assert list(journal.entries_until(6)) == second
    assert_goes_on(folder)


def test_a_file_that_cannot_be_opened_is_noted(told: Told) -> None:
    folder, _, second = told
    (folder / "00000003.journal").mkdir()
    with Journal(folder) as journal:
        assert "00000003.journal cannot be read" in journal.notes[0]
        assert list(journal.entries_until(6)) == second
    assert_goes_on(folder)


def test_every_file_empty_is_an_empty_journal(told: Told) -> None:
    folder, *_ = told
    for path in segments(folder):
        path.write_bytes(b"")
    assert JournalReader(folder).newest == 0
    assert_goes_on(folder)


def test_a_segment_under_another_ones_name_is_not_believed(told: Told) -> None:
    folder, *_ = told
    first, second = segments(folder)
    first.replace(second)
    assert JournalReader(folder).newest == 0
    assert_goes_on(folder)


def test_a_base_that_was_never_finished_is_cleared_away(told: Told) -> None:
    folder, _, second = told
    (folder / "00000003.new").write_bytes(b"half a base")
    with Journal(folder) as journal:
        assert journal.notes == ()
        assert not (folder / "00000003.new").exists()
        assert list(journal.entries_until(6)) == second


def test_a_file_that_breaks_while_it_is_read_is_an_error_with_a_way_out(told: Told) -> None:
    folder, *_ = told
    reader = JournalReader(folder)
    assert reader.newest == 6
    data = bytearray(segments(folder)[-1].read_bytes())
    data[60] ^= 1
    segments(folder)[-1].write_bytes(data)
    with pytest.raises(ClusterError, match="where it was whole before; check the disk"):
        list(reader.entries_until(6))


@pytest.mark.parametrize(("kind", "payload"), [(99, b""), (FrameKind.BATCH, b"\x91\x81\xa4type\xa7volcano")])
def test_an_entry_of_another_version_is_an_error_with_a_way_out(tmp_path: Path, kind: int, payload: bytes) -> None:
    journal = Journal(tmp_path)
    journal.base(Base(()))
    journal.close()
    frame = bytearray()
    append_frame(frame, kind, payload)
    with Journal(tmp_path) as journal:
        tell(journal, [1])
        journal.batch(())
        segment = journal._open
        assert segment is not None
        segment._buffer += frame
        journal.cycle(cycle(2))
        assert journal.newest == 2
        with pytest.raises(ClusterError, match="written by another version"):
            list(journal.entries_until(2))
        assert journal.cycle_at(2) == cycle(2)
