"""Write the journal into segments, with one write per cycle; the oldest segments are dropped to make room.

A full or broken disk never stops the scheduler, and the journal never exceeds `max_bytes`. Nothing is synced to the
disk before `close`: when the process dies, what was flushed is safe with the kernel; when the power fails, about the
last half minute may be lost, half-written, or zeros. The reader stops at the last whole entry, and writing continues in
a new segment. That is enough: the journal explains what happened, and what must not be lost lives with the cluster.
"""

import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, TypeVar

from kaiwo.history.journal_encoding import PART_EVENTS, FrameKind, append_cycle, append_frame, append_value
from kaiwo.history.journal_entries import Base, Cycle, Setting
from kaiwo.history.journal_reader import JournalReader
from kaiwo.history.journal_segment import encode_header, segment_path, segment_sequences
from kaiwo.model.errors import ClusterError
from kaiwo.model.events import Event

TEMPORARY_SUFFIX = ".new"


class SegmentWriter:
    """Raises OSError when the disk fails, ValueError or OverflowError when the format cannot hold a value."""

    def __init__(self, folder: Path, sequence: int, after: int) -> None:
        self.sequence = sequence
        self.flushed = 0  # bytes in the file
        self.base_bytes = 0
        self._path = segment_path(folder, sequence)
        self._temporary = self._path.with_suffix(TEMPORARY_SUFFIX)
        self._file = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._buffer = bytearray(encode_header(sequence, after))
        self._setting: Setting | None = None
        self._setting_at = 0

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    @property
    def is_published(self) -> bool:
        return self.base_bytes > 0

    def base_part(self, events: Sequence[Event]) -> None:
        append_value(self._buffer, FrameKind.BASE_PART, events)

    def base_end(self, state: bytes) -> None:
        append_frame(self._buffer, FrameKind.BASE, state)

    def batch(self, events: Sequence[Event]) -> None:
        append_value(self._buffer, FrameKind.BATCH, events)

    def cycle(self, cycle: Cycle) -> None:
        if cycle.setting != self._setting:
            self._setting, self._setting_at = cycle.setting, self.flushed + len(self._buffer)
            append_value(self._buffer, FrameKind.SETTING, cycle.setting)
        append_cycle(self._buffer, cycle, self.flushed, self._setting_at)

    def flush(self) -> None:
        """One write, unless the kernel takes less than all."""
        rest = memoryview(self._buffer)
        while rest:
            written = os.write(self._file, rest)
            self.flushed += written
            rest = rest[written:]
        self._buffer = bytearray()

    def publish(self) -> None:
        """Make the segment visible to readers, once its base is flushed."""
        os.rename(self._temporary, self._path)
        self.base_bytes = self.flushed

    def close(self, sync: bool = False) -> None:
        """A segment without a whole base is removed."""
        if sync:
            with suppress(OSError):  # only a power cut can lose it
                os.fsync(self._file)
        os.close(self._file)
        if not self.is_published:
            with suppress(OSError):
                self._temporary.unlink()


MIB = 1024 * 1024
BUFFER_BYTES = MIB // 4  # a larger buffer is flushed between cycles too
RETRY_S = 30.0  # after a failure: the base of a large cluster is too costly to retry each cycle
T = TypeVar("T")


class Journal(JournalReader):
    """One thread of one process writes; any may read what was flushed.

    Whenever `wants_base`, the caller must pass the whole state to `base` before the next entry.
    """

    def __init__(
        self,
        path: str | Path,
        max_bytes: int = 64 * MIB,
        segment_bytes: int = 8 * MIB,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(path)
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes
        self._clock = clock
        self._problems: deque[str] = deque(maxlen=50)
        self._retry_at = float("-inf")
        self._lock = _take_folder(self.path)
        self._closed = _sizes(self.path)  # bytes of the closed segments by sequence, the oldest first
        self._closed_bytes = sum(self._closed.values())
        self._sequence = max(self._closed, default=0)
        self._last = next((one.last for one in self._caught_up(newest_first=True) if one.has_header), 0)
        self._open: SegmentWriter | None = None  # while there is none, entries are dropped: they would rebuild nothing

    @property
    def wants_base(self) -> bool:
        if self._open is None:
            return self._clock() >= self._retry_at
        # A base larger than half a segment must be worth its cost: as many bytes of entries follow it.
        return self._open.flushed + self._open.buffered >= max(self.segment_bytes, 2 * self._open.base_bytes)

    @property
    def next_number(self) -> int:
        return self._last + 1

    @property
    def notes(self) -> tuple[str, ...]:
        return (*super().notes, *self._problems)

    def base(self, base: Base) -> None:
        """Begin a new segment with the whole state. Readers see it only when it is whole."""
        self._close_segment()
        self._write(self._begin_segment, base)

    def batch(self, events: Sequence[Event]) -> None:
        if self._open is not None and events:
            self._write(self._open.batch, events)

    def cycle(self, cycle: Cycle) -> None:
        """Write a cycle that was decided on the state after all entries so far, and flush."""
        if cycle.head.number <= self._last:
            raise ValueError(f"cycle {cycle.head.number} comes after cycle {self._last}: take next_number")
        self._last = cycle.head.number
        if self._open is not None:
            self._write(self._open.cycle, cycle)
            self.flush()

    def flush(self) -> None:
        self._write(self._flush, 0)

    def close(self) -> None:
        self._close_segment(sync=True)
        self._retry_at = float("inf")
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_segment(self, base: Base) -> None:
        self._open = segment = SegmentWriter(self.path, self._sequence + 1, self._last)
        for start in range(0, len(base.events), PART_EVENTS):
            segment.base_part(base.events[start : start + PART_EVENTS])
            self._flush(BUFFER_BYTES)
        segment.base_end(base.state)
        self._flush()
        segment.publish()
        self._sequence = segment.sequence

    def _write(self, write: Callable[[T], None], value: T) -> None:
        """If the disk fails or a value cannot be encoded, the scheduler continues, and the notes record it."""
        try:
            write(value)
            self._flush(BUFFER_BYTES)
        except OSError as error:
            self._suspend(f"cannot write to {self.path}: {error}; free some space or repair the disk")
        except (ValueError, OverflowError) as error:  # text that is not Unicode, a number over 64 bits
            self._suspend(f"an entry cannot be encoded: {error}; correct the object that it comes from")

    def _flush(self, from_bytes: int = 1) -> None:
        if self._open is not None and self._open.buffered >= from_bytes:
            self._make_room(self._open.flushed + self._open.buffered)
            self._open.flush()

    def _make_room(self, open_bytes: int) -> None:
        while self._closed and self._closed_bytes + open_bytes > self.max_bytes:
            oldest = next(iter(self._closed))
            segment_path(self.path, oldest).unlink(missing_ok=True)
            self._closed_bytes -= self._closed.pop(oldest)
        if open_bytes > self.max_bytes:
            raise OSError(f"one segment has {open_bytes} bytes, the journal may have {self.max_bytes}")

    def _suspend(self, problem: str) -> None:
        """Write nothing until the next base."""
        self._problems.append(f"the journal has a hole from cycle {self._last} on: {problem}")
        # A segment that had worked so far is followed by a new one at once. When that fails too, wait.
        had_worked = self._open is not None and self._open.is_published
        self._retry_at = self._clock() + (0.0 if had_worked else RETRY_S)
        self._release_segment()

    def _close_segment(self, sync: bool = False) -> None:
        self.flush()
        self._release_segment(sync)

    def _release_segment(self, sync: bool = False) -> None:
        if self._open is not None:
            self._open.close(sync)
            if self._open.is_published:
                self._closed[self._open.sequence] = self._open.flushed
                self._closed_bytes += self._open.flushed
        self._open = None


def _take_folder(folder: Path) -> IO[bytes]:
    """The lock of the only writer. It ends with the process, and its children do not inherit it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "lock").touch(mode=0o600)
        lock = (folder / "lock").open("ab")
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            way_out = "stop it, or read with JournalReader"
            raise ClusterError(f"another process writes the journal at {folder}: {way_out}") from error
        for leftover in folder.glob(f"*{TEMPORARY_SUFFIX}"):
            leftover.unlink()
    except OSError as error:
        raise ClusterError(f"the journal cannot use the folder {folder}: {error}; name another one") from error
    return lock


def _sizes(folder: Path) -> dict[int, int]:
    return {sequence: segment_path(folder, sequence).stat().st_size for sequence in segment_sequences(folder)}
