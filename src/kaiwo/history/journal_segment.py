"""Read one file of the journal: a header, a base, and the entries since.

Nothing after the first broken frame is trusted, since a rebuild needs every entry before its cycle. Another process may
be writing the file: what was read is not read again, only what was added since.
"""

import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from kaiwo.history.journal_encoding import (
    HEAD,
    FrameKind,
    JournalFrame,
    read_cycle,
    read_entries,
    read_head,
    read_offsets,
    walk_frames,
)
from kaiwo.history.journal_entries import Cycle, CycleHead, Entry
from kaiwo.model.errors import ClusterError

_HEADER = struct.Struct("<8sQQI")  # magic, sequence, the last cycle's number before this file, CRC of all that
_MAGIC = b"kaiwo-j1"
_ANY_MAGIC = b"kaiwo-j"  # of other formats, too
_SUFFIX = ".journal"


def segment_path(folder: Path, sequence: int) -> Path:
    return folder / f"{sequence:08d}{_SUFFIX}"


def segment_sequences(folder: Path) -> list[int]:
    """The oldest first. Other files are ignored."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def encode_header(sequence: int, after: int) -> bytes:
    front = struct.pack("<8sQQ", _MAGIC, sequence, after)
    return front + struct.pack("<I", zlib.crc32(front))


class Segment:
    def __init__(self, folder: Path, sequence: int) -> None:
        self.path = segment_path(folder, sequence)
        self.sequence = sequence
        self.after = 0  # the last cycle's number before this file
        self.has_header = self._is_of_other_format = False
        self.has_base = False
        self.end = 0  # up to here every frame is whole
        self.size = -1  # of the file, when it was last read
        self.problem = ""  # why the file could not be read at all
        self._is_read = False  # beyond its header
        # 16 bytes a cycle: a full journal of small cycles has hundreds of thousands of them.
        self.numbers = array("Q")
        self._cycles_at = array("Q")

    @property
    def last(self) -> int:
        """The number of its last cycle, or the last before it."""
        return self.numbers[-1] if self.numbers else self.after

    @property
    def damage(self) -> str:
        """What is lost, in one sentence; empty when nothing is, or when it was not read yet."""
        if self.problem:
            return f"{self.path.name} cannot be read: {self.problem}"
        if self.size == 0:
            return f"{self.path.name} is empty"
        if self._is_of_other_format:
            return f"{self.path.name} was written by another version of Kaiwo: read it with that version"
        if self.size > 0 and not self.has_header:
            return f"{self.path.name} has no readable header: nothing of it can be used"
        if not self._is_read:
            return ""
        if not self.has_base:
            return f"{self.path.name} has no whole base: nothing of it can be used"
        lost = self.size - self.end
        place = f"{self.path.name} is broken at byte {self.end}, after cycle {self.last}"
        return f"{place}: the {lost} bytes from there on are lost" if lost else ""

    def read_header(self) -> None:
        """The header is enough to know which cycles the file may hold."""
        if not self.has_header:
            with self.path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                self._take_header(file.read(_HEADER.size))

    def catch_up(self) -> None:
        self.read_header()
        if not self.has_header:
            return
        self._is_read = True
        if self.path.stat().st_size == self.end:
            self.size = self.end
            return
        with self.path.open("rb") as file:
            file.seek(self.end)
            data = file.read()
        self.size = self.end + len(data)
        for frame in walk_frames(data, self.end):
            self._take(frame)

    def heads(self, before: int, limit: int) -> list[CycleHead]:
        """The heads of the cycles below `before`, the newest first."""
        stop = bisect_left(self.numbers, before)
        offsets = self._cycles_at[max(0, stop - limit) : stop]
        if not offsets:
            return []
        with self.path.open("rb") as file:
            return [read_head(self._frame_at(file.fileno(), at)) for at in reversed(offsets)]

    def cycle(self, index: int) -> Cycle:
        with self.path.open("rb") as file:
            frame = self._frame_at(file.fileno(), self._cycles_at[index])
            offsets = read_offsets(frame)
            plan = self._frame_at(file.fileno(), offsets.plan_at)
            return read_cycle(frame, plan, self._frame_at(file.fileno(), offsets.setting_at))

    def entries(self, index: int | None) -> Iterator[Entry]:
        """From the base to the cycle at this index; None: to the end of what is whole. The file is read at once;
        entries are decoded one by one."""
        with self.path.open("rb") as file:
            end = self.end if index is None else self._frame_at(file.fileno(), self._cycles_at[index]).end
            file.seek(_HEADER.size)
            data = file.read(end - _HEADER.size)
        return read_entries(self._all_frames(data, end))

    def _take_header(self, data: bytes) -> None:
        if len(data) < _HEADER.size:
            return
        magic, sequence, after, crc = _HEADER.unpack(data)
        self._is_of_other_format = magic != _MAGIC and magic.startswith(_ANY_MAGIC) and crc == zlib.crc32(data[:-4])
        if magic == _MAGIC and sequence == self.sequence and crc == zlib.crc32(data[:-4]):
            self.has_header, self.after, self.end = True, after, _HEADER.size

    def _take(self, frame: JournalFrame) -> None:
        if frame.kind == FrameKind.CYCLE:
            self._cycles_at.append(frame.at)
            self.numbers.append(read_offsets(frame).number)
        self.has_base = self.has_base or frame.kind == FrameKind.BASE
        self.end = frame.end

    def _all_frames(self, data: bytes, end: int) -> Iterator[JournalFrame]:
        at = _HEADER.size
        for frame in walk_frames(data, at):
            yield frame
            at = frame.end
        if at != end:
            raise self._broken_since(at)

    def _frame_at(self, file: int, at: int) -> JournalFrame:
        head = os.pread(file, HEAD.size, at)
        if len(head) == HEAD.size:
            length = HEAD.unpack(head)[0]
            for frame in walk_frames(os.pread(file, HEAD.size + length, at), at):
                return frame
        raise self._broken_since(at)

    def _broken_since(self, at: int) -> ClusterError:
        return ClusterError(f"{self.path} is broken at byte {at}, where it was whole before; check the disk")
