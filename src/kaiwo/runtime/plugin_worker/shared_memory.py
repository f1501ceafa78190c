"""Memory that the scheduler and a worker share: arrays and messages, laid out one after the other.

The scheduler writes the input and the worker maps it read-only, sealed, so that even foreign machine code cannot make
it writable. The worker writes the output; the scheduler copies it before it looks at it.
"""

import fcntl
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

INPUT_BYTES, OUTPUT_BYTES = 256 << 20, 16 << 20  # at most; only what is used takes memory
MESSAGE_PLACE = struct.Struct("<QQ")  # offset and length; written to a pipe in one piece
F_SEAL_FUTURE_WRITE = 0x10
ALIGN, GROWTH = 64, 1 << 20


class ArrayPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies in the input."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class InputWriter:
    """The scheduler's side of the input."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("kaiwo-plugin-input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, INPUT_BYTES)
        self._map = mmap.mmap(self.fd, INPUT_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._end = 0  # of the arrays
        self._size = INPUT_BYTES

    def cut(self) -> None:
        """Once the worker has mapped it: from now on it is as long as what was put there, and can only grow.

        Reading a page of it takes memory even when nothing was written there. Beyond its end there are no pages.
        """
        os.ftruncate(self.fd, 0)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._size = 0

    def _reach(self, end: int) -> None:
        if end > self._size:
            self._size = min(INPUT_BYTES, -(-end // GROWTH) * GROWTH)
            os.ftruncate(self.fd, self._size)

    def put(self, arrays: Mapping[str, np.ndarray[Any, Any]], begin: int = 0) -> dict[str, ArrayPlace]:
        """Copy arrays into the input, from here on: what lies before stays as it is."""
        places, at = {}, begin
        for name, array in arrays.items():
            end = at + array.nbytes
            if end > INPUT_BYTES:
                raise ValueError(f"{end} bytes are too much for the shared memory of a plugin's worker")
            self._reach(end)
            target = self._bytes[at:end].view(array.dtype).reshape(array.shape)
            np.copyto(target, array)
            places[name] = ArrayPlace(array.dtype.str, array.shape, at)
            at = -(-end // ALIGN) * ALIGN
        self._end = at
        return places

    @property
    def end(self) -> int:
        """Of the arrays that were put last."""
        return self._end

    def put_message(self, message: bytes) -> bytes:
        """Copy a message behind the arrays. Returns the bytes that tell the worker where it is."""
        if self._end + len(message) > INPUT_BYTES:
            raise ValueError(f"a message of {len(message)} bytes is too much for the shared memory of a worker")
        self._reach(self._end + len(message))
        self._map[self._end : self._end + len(message)] = message
        place, self._end = MESSAGE_PLACE.pack(self._end, len(message)), 0
        return place

    def close(self) -> None:
        del self._bytes
        self._map.close()
        os.close(self.fd)


class InputReader:
    """The worker's side of the input: every array that it gives cannot be written."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, INPUT_BYTES, prot=mmap.PROT_READ)
        os.close(fd)

    def message(self, place: bytes) -> bytes:
        offset, length = MESSAGE_PLACE.unpack(place)
        return self._map[offset : offset + length]

    def array(self, place: ArrayPlace) -> np.ndarray[Any, Any]:
        count = int(np.prod(place.shape))
        return np.frombuffer(self._map, np.dtype(place.dtype), count, place.offset).reshape(place.shape)


class OutputReader:
    """The scheduler's side of the output."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("kaiwo-plugin-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, OUTPUT_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._map = mmap.mmap(self.fd, OUTPUT_BYTES, prot=mmap.PROT_READ)

    def copy(self, length: int) -> bytes:
        """A copy: what the worker writes from now on changes nothing."""
        return self._map[:length]

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)


class OutputWriter:
    """The worker's side of the output."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, OUTPUT_BYTES)
        os.close(fd)

    def put(self, data: bytes) -> None:
        if len(data) > OUTPUT_BYTES:
            raise ValueError(f"an answer of {len(data)} bytes is too long; {OUTPUT_BYTES} is the most")
        self._map[: len(data)] = data
