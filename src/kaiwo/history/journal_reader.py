"""Read a journal, even while another process writes it.

A broken file does not make a read fail: `notes` list what is lost, and the rest can be read.
"""

import itertools
import struct
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from kaiwo.history.journal_entries import Cycle, CycleHead, Entry
from kaiwo.history.journal_segment import Segment, segment_sequences
from kaiwo.model.errors import ClusterError, NotFoundError


class JournalReader:
    """Any thread may read; it gets what is on disk at that moment. Segments are read only when they are needed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._segments: list[Segment] = []  # the oldest first
        self._reading = threading.RLock()

    @property
    def oldest(self) -> int:
        """The first cycle's number; 0 when there is none."""
        with self._reading:
            return next((segment.numbers[0] for segment in self._caught_up() if segment.numbers), 0)

    @property
    def newest(self) -> int:
        """The last cycle's number; 0 when there is none."""
        with self._reading:
            return next((segment.last for segment in self._caught_up(newest_first=True) if segment.numbers), 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is lost in the segments read so far. While a writer runs, the newest may end in half an entry."""
        with self._reading:
            self._refresh()
            return (*self._gaps(), *(segment.damage for segment in self._segments if segment.damage))

    def cycles(self, limit: int = 50, before: int | None = None) -> list[CycleHead]:
        """The heads of the cycles below `before`, the newest first."""
        heads: list[CycleHead] = []
        bound = 2**63 if before is None else before
        with self._reading:
            for segment in self._caught_up(newest_first=True, before=bound):
                with suppress(NotFoundError), self._explained(segment):  # dropped just now
                    heads += segment.heads(bound, limit - len(heads))
                if len(heads) >= limit:
                    break
                bound = heads[-1].number if heads else bound
        return heads

    def cycle_at(self, number: int) -> Cycle:
        with self._reading:
            segment, index = self._find(number)
            with self._explained(segment):
                return segment.cycle(index)

    def last_of_segments(self) -> list[int]:
        """The number of the last cycle of each segment that has any, the oldest first; each begins with a base."""
        with self._reading:
            return [segment.last for segment in self._caught_up() if segment.numbers]

    def entries(self) -> Iterator[Entry]:
        """All that is kept, with what came after the last cycle. Each segment begins with a base."""
        with self._reading:
            kept = [segment for segment in self._caught_up() if segment.has_base]
        for segment in kept:
            with self._explained(segment):
                entries = segment.entries(None)
            yield from self._explain_each(segment, entries)

    def entries_until(self, number: int) -> Iterator[Entry]:
        """From the last base before the cycle to the cycle itself."""
        with self._reading:
            segment, index = self._find(number)
            with self._explained(segment):
                entries = segment.entries(index)
        return self._explain_each(segment, entries)

    def _refresh(self) -> None:
        known = {segment.sequence: segment for segment in self._segments}
        self._segments = [known.get(number) or Segment(self.path, number) for number in segment_sequences(self.path)]
        for segment in self._segments:
            _attempt(segment, segment.read_header)

    def _caught_up(self, *, newest_first: bool = False, before: int = 2**63) -> Iterator[Segment]:
        """The segments that may hold cycles below `before`, each read when it is reached."""
        self._refresh()
        for segment in reversed(self._segments) if newest_first else self._segments:
            if segment.after + 1 < before:
                _attempt(segment, segment.catch_up)
                yield segment

    def _find(self, number: int) -> tuple[Segment, int]:
        self._refresh()
        # The newest that began before it: after a broken file, lost numbers are used again.
        segment = next((one for one in reversed(self._segments) if one.has_header and one.after < number), None)
        if segment is not None:
            _attempt(segment, segment.catch_up)
            index = bisect_left(segment.numbers, number)
            if index < len(segment.numbers) and segment.numbers[index] == number:
                return segment, index
        reason = segment.damage if segment else ""
        raise NotFoundError(
            f"cycle {number} is not in the journal at {self.path}: {reason or self._kept_around(number)}"
        )

    def _kept_around(self, number: int) -> str:
        """Which cycles there are, and which are lost around this number."""
        oldest, newest = self.oldest, self.newest
        if not newest:
            return "it is empty"
        kept = f"cycles {oldest} to {newest} are kept"
        if not oldest < number < newest:
            return kept
        numbers = sorted({each for segment in self._caught_up() for each in segment.numbers})
        at = bisect_left(numbers, number)
        first, last = numbers[at - 1] + 1, numbers[at] - 1
        return f"{kept}, and {first if first == last else f'{first} to {last}'} of them are lost"

    def _gaps(self) -> Iterator[str]:
        for one, following in itertools.pairwise(self._segments):
            first, last = one.sequence + 1, following.sequence - 1
            if first <= last:
                which = f"segment {first} is" if first == last else f"segments {first} to {last} are"
                yield f"{which} missing, with cycles up to {following.after}"

    @contextmanager
    def _explained(self, segment: Segment) -> Iterator[None]:
        """Turn errors on whole frames into sentences: the file was dropped, or another version wrote it."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(f"{segment.path} was dropped to make room; ask for a newer cycle") from error
        except (msgspec.MsgspecError, struct.error, zlib.error) as error:
            way_out = "it was written by another version of Kaiwo; read it with that version"
            raise ClusterError(f"{segment.path} cannot be understood ({error}): {way_out}") from error

    def _explain_each(self, segment: Segment, entries: Iterator[Entry]) -> Iterator[Entry]:
        with self._explained(segment):
            yield from entries


def _attempt(segment: Segment, read: Callable[[], None]) -> None:
    """Read from a segment. A file that the writer just dropped is ignored; one that cannot be read is noted."""
    try:
        read()
        segment.problem = ""
    except FileNotFoundError:
        pass
    except OSError as error:
        segment.problem = str(error)
