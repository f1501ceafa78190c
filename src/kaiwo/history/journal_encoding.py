"""Encode journal entries as frames of bytes, and decode them.

    base    BASE_PART* BASE        parts, so that a large base needs no second copy of itself in memory
    batch   BATCH
    cycle   [SETTING] PLAN CYCLE   the setting only when it changed; without the CYCLE frame there was no cycle

A frame has a checksum, so that a broken one is never taken for a whole one.
"""

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kaiwo.history.journal_entries import Base, Batch, Cycle, CycleHead, Entry, Setting
from kaiwo.model.events import Event

HEAD = struct.Struct("<IIB")  # length of the payload, CRC, kind
# Events compress to a fifth. Below this size the gain is not worth the 8 µs that a stream costs to set up; level 1
# costs 1 µs an event, level 6 three times that for another fifth.
COMPRESS_FROM_BYTES = 1024
_COMPRESSED = 0x80
_KIND_CRC = tuple(zlib.crc32(bytes((kind,))) for kind in range(256))


class JournalFrame(NamedTuple):
    kind: int
    raw: memoryview  # the payload as it is in the file
    is_compressed: bool
    at: int  # where it begins in its file
    end: int

    @property
    def payload(self) -> bytes:
        return zlib.decompress(self.raw) if self.is_compressed else bytes(self.raw)


def append_frame(buffer: bytearray, kind: int, payload: bytes) -> None:
    if len(payload) >= COMPRESS_FROM_BYTES:
        compressed = zlib.compress(payload, 1)
        if len(compressed) < len(payload):
            kind, payload = kind | _COMPRESSED, compressed
    buffer += HEAD.pack(len(payload), zlib.crc32(payload, _KIND_CRC[kind]), kind)
    buffer += payload


def walk_frames(data: bytes, offset: int = 0) -> Iterator[JournalFrame]:
    """The frames up to the first broken one; `offset` is where `data` begins in its file."""
    view = memoryview(data)
    at, size = 0, len(data)
    while at + HEAD.size <= size:
        length, crc, kind = HEAD.unpack_from(data, at)
        start, end = at + HEAD.size, at + HEAD.size + length
        if end > size or zlib.crc32(view[start:end], _KIND_CRC[kind]) != crc:
            return
        yield JournalFrame(kind & ~_COMPRESSED, view[start:end], kind >= _COMPRESSED, offset + at, offset + end)
        at = end


PART_EVENTS = 4096
# A CYCLE frame begins with these three offsets, so that a cycle is found without decoding and read without searching.
_OFFSETS = struct.Struct("<QQQ")
_encode = msgspec.msgpack.Encoder().encode
_decode_events = msgspec.msgpack.Decoder(tuple[Event, ...]).decode
_decode_setting = msgspec.msgpack.Decoder(Setting).decode
_decode_head = msgspec.msgpack.Decoder(CycleHead).decode


class FrameKind(enum.IntEnum):
    """The numbers are in people's files: never change or reuse one."""

    BASE_PART = 1
    BASE = 2
    BATCH = 3
    SETTING = 4
    PLAN = 5
    CYCLE = 6


class CycleOffsets(NamedTuple):
    number: int  # of the cycle
    plan_at: int  # in its file
    setting_at: int


def append_value(buffer: bytearray, kind: FrameKind, value: Setting | Sequence[Event]) -> None:
    append_frame(buffer, kind, _encode(value))


def append_cycle(buffer: bytearray, cycle: Cycle, buffer_at: int, setting_at: int) -> None:
    """`buffer_at` is the offset of the buffer's first byte in the file."""
    offsets = CycleOffsets(cycle.head.number, buffer_at + len(buffer), setting_at)
    append_frame(buffer, FrameKind.PLAN, cycle.plan)
    append_frame(buffer, FrameKind.CYCLE, _OFFSETS.pack(*offsets) + _encode(cycle.head))


def read_offsets(frame: JournalFrame) -> CycleOffsets:
    return CycleOffsets(*_OFFSETS.unpack_from(frame.payload))


def read_head(frame: JournalFrame) -> CycleHead:
    return _decode_head(frame.payload[_OFFSETS.size :])


def read_cycle(cycle: JournalFrame, plan: JournalFrame, setting: JournalFrame) -> Cycle:
    return Cycle(read_head(cycle), _decode_setting(setting.payload), plan.payload)


def read_entries(frames: Iterable[JournalFrame]) -> Iterator[Entry]:
    parts: list[Event] = []
    plan, setting = b"", Setting("")
    for frame in frames:
        match frame.kind:
            case FrameKind.BASE_PART:
                parts.extend(_decode_events(frame.payload))
            case FrameKind.BASE:
                yield Base(tuple(parts), frame.payload)
                parts = []
            case FrameKind.BATCH:
                yield Batch(_decode_events(frame.payload))
            case FrameKind.SETTING:
                setting = _decode_setting(frame.payload)
            case FrameKind.PLAN:
                plan = frame.payload
            case FrameKind.CYCLE:
                yield Cycle(read_head(frame), setting, plan)
            case unknown:
                raise msgspec.DecodeError(f"frames of kind {unknown} are unknown")
