"""Entries into frames, and frames into entries.

In:    entries, or the frames of a segment in their order.   Out: the other.
Never: touches a file.

    base    BASE_PART* BASE        parts, so that a large base needs no second copy of itself in memory
    batch   BATCH
    cycle   [SETTING] PLAN CYCLE   the setting when it changed; the cycle last: without it there was no cycle
"""

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kaiwo.history.entry import Base, Batch, Cycle, CycleHead, Entry, Setting
from kaiwo.history.frames import Frame, append_frame
from kaiwo.model.event import Event

PART_EVENTS = 4096
# A cycle begins with its number and where its plan and setting lie: found without decoding, read without searching.
_PLACES = struct.Struct("<QQQ")
_encode = msgspec.msgpack.Encoder().encode
_decode_events = msgspec.msgpack.Decoder(tuple[Event, ...]).decode
_decode_setting = msgspec.msgpack.Decoder(Setting).decode
_decode_head = msgspec.msgpack.Decoder(CycleHead).decode


class FrameKind(enum.IntEnum):
    """What a payload means. The numbers are in people's files: never renamed, never reused."""

    BASE_PART = 1
    BASE = 2
    BATCH = 3
    SETTING = 4
    PLAN = 5
    CYCLE = 6


class Places(NamedTuple):
    """A cycle's number, and the offsets in its file of what belongs to it."""

    number: int
    plan_at: int
    setting_at: int


def append_base_part(buffer: bytearray, events: Sequence[Event]) -> None:
    append_frame(buffer, FrameKind.BASE_PART, _encode(events))


def append_base_end(buffer: bytearray, state: bytes) -> None:
    append_frame(buffer, FrameKind.BASE, state)


def append_batch(buffer: bytearray, events: Sequence[Event]) -> None:
    append_frame(buffer, FrameKind.BATCH, _encode(events))


def append_setting(buffer: bytearray, setting: Setting) -> None:
    append_frame(buffer, FrameKind.SETTING, _encode(setting))


def append_cycle(buffer: bytearray, cycle: Cycle, buffer_at: int, setting_at: int) -> None:
    """`buffer_at` is where the buffer's first byte will lie in the file."""
    places = Places(cycle.head.number, buffer_at + len(buffer), setting_at)
    append_frame(buffer, FrameKind.PLAN, cycle.plan)
    append_frame(buffer, FrameKind.CYCLE, _PLACES.pack(*places) + _encode(cycle.head))


def read_places(frame: Frame) -> Places:
    """Of a cycle's frame."""
    return Places(*_PLACES.unpack_from(frame.payload))


def read_head(frame: Frame) -> CycleHead:
    return _decode_head(frame.payload[_PLACES.size :])


def read_cycle(cycle: Frame, plan: Frame, setting: Frame) -> Cycle:
    return Cycle(read_head(cycle), _decode_setting(setting.payload), plan.payload)


def read_entries(frames: Iterable[Frame]) -> Iterator[Entry]:
    """The entries of one segment, from its first frame on."""
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
                raise msgspec.DecodeError(f"no meaning is known for frames of kind {unknown}")
