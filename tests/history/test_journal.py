"""The journal is bounded, numbered, asks for a base when it wants one, and never stops the scheduler."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kaiwo.history import Base, Batch, Journal, JournalReader
from kaiwo.history.journal_writer import RETRY_S
from kaiwo.model.errors import ClusterError, NotFoundError
from kaiwo.model.events import WorkloadGone
from tests.history.sample_journals import check, cycle, pod_events, segments, size_of, tell

KIB = 1024


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_new_journal_is_empty_and_wants_a_base(tmp_path: Path) -> None:
    with Journal(tmp_path / "deep" / "down") as journal:
        assert journal.wants_base
        assert (journal.oldest, journal.newest, journal.next_number) == (0, 0, 1)
        assert journal.cycles() == []
        assert check(journal) == ()
        with pytest.raises(NotFoundError, match=r"cycle 1 is not in the journal .* it is empty"):
            journal.cycle_at(1)


def test_a_reader_of_a_folder_that_does_not_exist_finds_nothing(tmp_path: Path) -> None:
    assert JournalReader(tmp_path / "none").cycles() == []
    assert not (tmp_path / "none").exists()


def test_numbers_may_be_left_out_but_never_fall(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        tell(journal, [3, 4, 90])
        assert (journal.oldest, journal.newest, journal.next_number) == (3, 90, 91)
        for number in (90, 4, 0):
            with pytest.raises(ValueError, match="comes after cycle 90"):
                journal.cycle(cycle(number))
        with pytest.raises(NotFoundError, match=r"cycle 5 .* cycles 3 to 90 are kept"):
            journal.entries_until(5)


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        tell(journal, [1, 2])
    with Journal(tmp_path) as journal:
        assert journal.wants_base
        assert journal.next_number == 3
        journal.base(Base(()))
    with Journal(tmp_path) as journal:
        assert journal.next_number == 3
        story = tell(journal, [3, 4])
        assert list(journal.entries_until(4)) == story
        assert [head.number for head in journal.cycles()] == [4, 3, 2, 1]
        assert check(journal) == ()


def test_cycles_are_listed_in_pages_over_segments(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for first in range(1, 40, 10):
            tell(journal, range(first, first + 10, 2))
        listed, before = [], None
        while page := journal.cycles(limit=3, before=before):
            assert len(page) <= 3
            listed += [head.number for head in page]
            before = page[-1].number
        assert listed == list(range(39, 0, -2))
        assert journal.cycles(limit=0) == []
        assert journal.cycles(before=1) == []


def test_a_rebuild_starts_at_the_last_base_before_the_cycle(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        first = tell(journal, [1, 2])
        second = tell(journal, [3, 4])
        assert list(journal.entries_until(2)) == first
        assert list(journal.entries_until(3)) == second[:3]


def test_entries_before_the_first_base_are_dropped(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.batch(pod_events(3))
        journal.cycle(cycle(1))
        assert journal.newest == 0
        assert segments(tmp_path) == []
        story = tell(journal, [2])
        assert list(journal.entries_until(2)) == story


def test_a_full_segment_wants_a_base_and_a_base_begins_a_new_one(tmp_path: Path) -> None:
    with Journal(tmp_path, segment_bytes=4 * KIB) as journal:
        tell(journal, [1])
        assert not journal.wants_base
        while not journal.wants_base:
            journal.cycle(cycle(journal.next_number))
        assert 4 * KIB <= segments(tmp_path)[0].stat().st_size < 5 * KIB
        tell(journal, [journal.next_number])
        assert not journal.wants_base
        assert len(segments(tmp_path)) == 2


def test_a_base_larger_than_a_segment_is_not_asked_for_again_at_once(tmp_path: Path) -> None:
    with Journal(tmp_path, segment_bytes=KIB) as journal:
        journal.base(Base(pod_events(5000)))
        base_bytes = size_of(tmp_path)
        assert base_bytes > 4 * KIB
        while not journal.wants_base:
            journal.cycle(cycle(journal.next_number))
        assert size_of(tmp_path) >= 2 * base_bytes


def test_the_journal_never_goes_over_its_bound(tmp_path: Path) -> None:
    with Journal(tmp_path, max_bytes=32 * KIB, segment_bytes=4 * KIB) as journal:
        for _ in range(600):
            if journal.wants_base:
                journal.base(Base(pod_events(30)))
            journal.batch(pod_events(2, journal.next_number))
            journal.cycle(cycle(journal.next_number))
            assert size_of(tmp_path) <= 32 * KIB
        assert journal.newest == 600
        assert journal.oldest > 1
        assert size_of(tmp_path) > 24 * KIB
        assert isinstance(next(journal.entries_until(journal.oldest)), Base)
        assert check(journal) == ()
        with pytest.raises(NotFoundError, match=f"cycles {journal.oldest} to 600 are kept"):
            journal.cycle_at(1)


def test_the_bound_holds_when_nobody_gives_a_base(tmp_path: Path) -> None:
    with Journal(tmp_path, max_bytes=16 * KIB, segment_bytes=4 * KIB) as journal:
        tell(journal, [1])
        for _ in range(400):
            journal.cycle(cycle(journal.next_number))
            assert size_of(tmp_path) <= 16 * KIB
        assert journal.wants_base
        assert "may have 16384" in journal.notes[0]
        story = tell(journal, [journal.next_number])
        assert list(journal.entries_until(402)) == story


def test_a_bound_too_small_for_a_base_is_said(tmp_path: Path) -> None:
    clock = Clock()
    with Journal(tmp_path, max_bytes=KIB, clock=clock) as journal:
        journal.base(Base(pod_events(5000)))
        assert not journal.wants_base
        assert "may have 1024" in journal.notes[0]
        assert segments(tmp_path) == []
        clock.now += RETRY_S
        assert journal.wants_base


def test_a_full_disk_leaves_a_hole_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with Journal(tmp_path, clock=clock) as journal:
        story = tell(journal, [1, 2])
        write = os.write

        def half(file: int, data: memoryview) -> int:
            if len(data) > 20:
                return write(file, data[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("kaiwo.history.journal_writer.os.write", half)
        journal.batch(pod_events(3))
        journal.cycle(cycle(3))
        assert journal.wants_base
        journal.base(Base(()))
        assert not journal.wants_base
        journal.cycle(cycle(4))
        assert "No space left" in journal.notes[-1]
        assert list(tmp_path.glob("*.new")) == []

        monkeypatch.undo()
        clock.now += RETRY_S
        assert journal.wants_base
        later = tell(journal, [5])
        assert list(journal.entries_until(2)) == story
        assert list(journal.entries_until(5)) == later
        assert [head.number for head in journal.cycles()] == [5, 2, 1]
        assert any("broken at byte" in note for note in journal.notes)


def test_a_value_that_cannot_be_encoded_leaves_a_hole_and_a_note(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        story = tell(journal, [1])
        journal.batch([WorkloadGone("\ud800")])
        journal.cycle(cycle(2))
        assert "cannot be encoded" in journal.notes[0]
        assert list(journal.entries_until(1)) == story
        story = tell(journal, [3])
        assert list(journal.entries_until(3)) == story


def test_an_empty_batch_writes_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.base(Base(()))
        size = size_of(tmp_path)
        journal.batch(())
        journal.flush()
        assert size_of(tmp_path) == size


def test_a_batch_is_on_disk_when_it_was_flushed(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.base(Base(()))
        size = size_of(tmp_path)
        journal.batch(pod_events(1))
        assert size_of(tmp_path) == size
        journal.flush()
        assert size_of(tmp_path) > size
        journal.cycle(cycle(1))
        assert list(journal.entries_until(1)) == [Base(()), Batch(pod_events(1)), cycle(1)]


def test_a_cycle_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path) as journal:
        journal.base(Base(()))
        writes: list[int] = []
        write = os.write

        def counted(file: int, data: memoryview) -> int:
            writes.append(len(data))
            return write(file, data)

        monkeypatch.setattr("kaiwo.history.journal_writer.os.write", counted)
        for _ in range(3):
            journal.batch(pod_events(200))
        journal.cycle(cycle(1))
        assert len(writes) == 1


def test_a_closed_journal_takes_nothing_and_wants_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    tell(journal, [1])
    journal.close()
    journal.close()
    journal.batch(pod_events(1))
    journal.cycle(cycle(2))
    assert not journal.wants_base
    assert journal.newest == 1


def test_only_one_process_writes(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        tell(journal, [1])
        code = "import sys; from kaiwo.history import Journal; Journal(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "another process writes the journal" in done.stderr
        assert JournalReader(tmp_path).newest == 1


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot use the folder"):
        Journal(tmp_path / "file")


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    for name in ("README", "x.journal", "-1.journal", "\u0661.journal"):
        (tmp_path / name).write_text("mine")
    with Journal(tmp_path) as journal:
        tell(journal, [1])
        assert check(journal) == ()
    assert (tmp_path / "x.journal").read_text() == "mine"
