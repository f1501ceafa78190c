"""One segment while it is written.

In:    a base first, then batches and cycles.   Out: a file; entries are gathered and go to the kernel in one write.
Never: syncs unless told to; shows under its own name before its base is whole.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kaiwo.history.codec import (
    append_base_end,
    append_base_part,
    append_batch,
    append_cycle,
    append_setting,
)
from kaiwo.history.entry import Cycle, Setting
from kaiwo.history.segment import encode_header, segment_path
from kaiwo.model.event import Event

TEMPORARY_SUFFIX = ".new"


class SegmentWriter:
    """Raises OSError when the disk does not take it, ValueError or OverflowError when the format cannot hold it."""

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
        """Bytes that are not in the file yet."""
        return len(self._buffer)

    @property
    def is_published(self) -> bool:
        """Its base is whole."""
        return self.base_bytes > 0

    def base_part(self, events: Sequence[Event]) -> None:
        append_base_part(self._buffer, events)

    def base_end(self, state: bytes) -> None:
        append_base_end(self._buffer, state)

    def batch(self, events: Sequence[Event]) -> None:
        append_batch(self._buffer, events)

    def cycle(self, cycle: Cycle) -> None:
        """With its setting when that is not the last one's."""
        if cycle.setting != self._setting:
            self._setting, self._setting_at = cycle.setting, self.flushed + len(self._buffer)
            append_setting(self._buffer, cycle.setting)
        append_cycle(self._buffer, cycle, self.flushed, self._setting_at)

    def flush(self) -> None:
        """One write; more only when the kernel takes less than all."""
        rest = memoryview(self._buffer)
        while rest:
            written = os.write(self._file, rest)
            self.flushed += written
            rest = rest[written:]
        self._buffer = bytearray()

    def publish(self) -> None:
        """The base is flushed: let readers see the segment."""
        os.rename(self._temporary, self._path)
        self.base_bytes = self.flushed

    def close(self, sync: bool = False) -> None:
        """Leave what was flushed; a segment without a whole base leaves nothing."""
        with suppress(OSError):  # what could not be synced may be lost with the power, as anything may
            if sync:
                os.fsync(self._file)
        os.close(self._file)
        if not self.is_published:
            with suppress(OSError):
                self._temporary.unlink()
