"""Frames: how bytes lie in a segment, so that a broken one is never taken for a whole one.

In:    a kind and a payload.   Out: length, CRC-32, kind, payload; and back.
Never: opens a file, or knows what a payload means.

A frame is guarded by the CRC of its kind and payload. Zeros, as a power cut leaves them, are no frame: the CRC of the
kind 0 with no payload is not 0.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

HEAD = struct.Struct("<IIB")  # length of the payload, CRC, kind
# Events compress to a fifth. Below this size there is too little to gain for the 8 µs that a stream costs to set up;
# level 1 costs 1 µs an event, level 6 three times that for another fifth.
COMPRESS_FROM_BYTES = 1024
_COMPRESSED = 0x80
_KIND_CRC = tuple(zlib.crc32(bytes((kind,))) for kind in range(256))


class Frame(NamedTuple):
    """One whole frame, its payload as it lies in the file."""

    kind: int
    raw: memoryview
    is_compressed: bool
    at: int  # where it begins in its file
    end: int

    @property
    def payload(self) -> bytes:
        """What was given to `append_frame`."""
        return zlib.decompress(self.raw) if self.is_compressed else bytes(self.raw)


def append_frame(buffer: bytearray, kind: int, payload: bytes) -> None:
    """Add one frame to the buffer, compressed where that pays."""
    if len(payload) >= COMPRESS_FROM_BYTES:
        compressed = zlib.compress(payload, 1)
        if len(compressed) < len(payload):
            kind, payload = kind | _COMPRESSED, compressed
    buffer += HEAD.pack(len(payload), zlib.crc32(payload, _KIND_CRC[kind]), kind)
    buffer += payload


def walk_frames(data: bytes, offset: int = 0) -> Iterator[Frame]:
    """Every whole frame up to the first that is not; `offset` is where `data` begins in its file."""
    view = memoryview(data)
    at, size = 0, len(data)
    while at + HEAD.size <= size:
        length, crc, kind = HEAD.unpack_from(data, at)
        start, end = at + HEAD.size, at + HEAD.size + length
        if end > size or zlib.crc32(view[start:end], _KIND_CRC[kind]) != crc:
            return
        yield Frame(kind & ~_COMPRESSED, view[start:end], kind >= _COMPRESSED, offset + at, offset + end)
        at = end
