"""A journal can be read while it is written: by another process, and by other threads."""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kaiwo.history import Base, Journal, JournalReader
from kaiwo.model.errors import NotFoundError
from tests.conftest import ROOT
from tests.history.sample_journals import cycle, pod_events, segments, tell

WRITER = """
import sys
from kaiwo.history import Base, Journal
from tests.conftest import ROOT
from tests.history.sample_journals import cycle, pod_events
with Journal(sys.argv[1], max_bytes=400_000, segment_bytes=40_000) as journal:
    while True:
        if journal.wants_base:
            journal.base(Base(pod_events(100)))
        number = journal.next_number
        journal.batch(pod_events(number % 30 + 1, number))
        journal.cycle(cycle(number))
"""


def test_another_process_reads_while_one_writes_and_is_killed(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT)
    reader = JournalReader(tmp_path)
    rebuilt: set[int] = set()
    try:
        while len(rebuilt) < 30 or reader.oldest < 2:
            assert writer.poll() is None
            with suppress(NotFoundError):  # nothing yet, or dropped just now
                number = reader.newest
                *_, last = reader.entries_until(number)
                assert last == cycle(number)
                rebuilt.add(number)
            listed = [head.number for head in reader.cycles(limit=20)]
            assert listed == sorted(set(listed), reverse=True)
    finally:
        writer.kill()
        writer.wait()
    with Journal(tmp_path) as journal:
        assert journal.next_number > max(rebuilt)
        tell(journal, [journal.next_number])
        assert [head.number for head in journal.cycles(2)] == [journal.newest, journal.newest - 1]


def test_a_reader_sees_what_came_since(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path)
    with Journal(tmp_path) as journal:
        assert reader.newest == 0
        story = tell(journal, [1])
        assert list(reader.entries_until(1)) == story
        journal.batch(pod_events(2))
        journal.cycle(cycle(2))
        assert reader.newest == 2
        story = tell(journal, [3])
        assert list(reader.entries_until(3)) == story


def test_half_an_entry_is_no_entry_until_the_rest_comes(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        story = tell(journal, [1, 2])
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = JournalReader(tmp_path)
    assert reader.newest == 1
    assert "are lost" in reader.notes[0]
    path.write_bytes(whole)
    assert reader.newest == 2
    assert reader.notes == ()
    assert list(reader.entries_until(2)) == story


def test_a_segment_dropped_under_the_reader_is_a_cycle_not_found(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        tell(journal, [1])
        tell(journal, [2])
    reader = JournalReader(tmp_path)
    assert reader.oldest == 1
    segments(tmp_path)[0].unlink()
    with pytest.raises(NotFoundError, match="cycles 2 to 2 are kept"):
        reader.cycle_at(1)
    assert reader.oldest == 2


def test_cycles_that_are_lost_between_others_are_not_said_to_be_kept(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for number in range(1, 8):
            tell(journal, [number])
    for path in segments(tmp_path)[4:6]:
        path.unlink()
    with pytest.raises(NotFoundError, match="cycles 1 to 7 are kept, and 5 to 6 of them are lost"):
        JournalReader(tmp_path).cycle_at(5)


def test_other_threads_read_while_one_writes(tmp_path: Path) -> None:
    problems: list[BaseException] = []
    done = threading.Event()

    def read(journal: Journal) -> None:
        try:
            while not done.is_set():
                for head in journal.cycles(limit=5):
                    try:
                        assert journal.cycle_at(head.number).head == head
                    except NotFoundError:
                        assert journal.oldest > head.number
        except BaseException as problem:
            problems.append(problem)

    with Journal(tmp_path, max_bytes=100_000, segment_bytes=10_000) as journal:
        threads = [threading.Thread(target=read, args=(journal,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 1001):
            if journal.wants_base:
                journal.base(Base(pod_events(20)))
            journal.cycle(cycle(number))
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []
