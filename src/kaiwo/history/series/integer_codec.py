"""Encode a matrix of integers in few bytes, and decode it.

In:    one row a subject, one column a sample; 0 or more, or MISSING.   Out: bytes.
How: differences along each row, in the smallest unsigned type that holds them, sorted by byte, compressed. A value that
stays the same costs next to nothing, and one that wanders by 100 about one byte.
"""

import struct
import zlib

import numpy as np
import numpy.typing as npt

from kaiwo.model.errors import ClusterError

Matrix = npt.NDArray[np.int64]
MISSING = -1  # nobody knows this value
MOST = 2**61  # larger values are recorded as this
_HEAD = struct.Struct("<BII")  # bytes of one difference, rows, columns
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_EFFORT = 1  # of zlib: higher ones take up to four times as long for 5 % fewer bytes


def encode(values: Matrix) -> bytes:
    known = np.clip(values, MISSING, MOST) + 1  # so that MISSING is 0
    steps = np.diff(known, axis=1, prepend=0)
    signless = ((steps << 1) ^ (steps >> 63)).astype(np.uint64)  # small ones stay small, whatever their sign
    largest = int(signless.max()) if signless.size else 0
    size = next(size for size in _TYPES if largest < 1 << 8 * size)
    packed = signless.astype(_TYPES[size])
    by_byte = packed.reshape(-1).view(np.uint8).reshape(-1, size).T
    return _HEAD.pack(size, *values.shape) + zlib.compress(np.ascontiguousarray(by_byte).tobytes(), _EFFORT)


def readable_frame(data: bytes) -> npt.NDArray[np.int64] | None:
    """One column of samples as a vector; None when it is damaged: nobody knows these values any more."""
    try:
        found = decode(data)
    except ClusterError:
        return None
    return found[0] if len(found) == 1 else None


def readable_block(data: bytes, samples: int) -> Matrix | None:
    """Rows of so many samples; None when it is damaged."""
    try:
        found = decode(data)
    except ClusterError:
        return None
    return found if found.shape[1] == samples else None


def decode(data: bytes) -> Matrix:
    """ClusterError when these bytes are not what `encode` makes."""
    try:
        size, rows, columns = _HEAD.unpack_from(data)
        plain = np.frombuffer(zlib.decompress(memoryview(data)[_HEAD.size :]), np.uint8)
        by_value = np.ascontiguousarray(plain.reshape(size, -1).T)
        signless = by_value.reshape(-1).view(_TYPES[size]).astype(np.uint64).reshape(rows, columns)
    except (struct.error, zlib.error, TypeError, ValueError, KeyError) as error:
        raise ClusterError(f"a block of the time series is damaged: {error}") from error
    steps = (signless >> 1).astype(np.int64) ^ -(signless & 1).astype(np.int64)
    known: Matrix = np.cumsum(steps, axis=1) - 1
    return known
