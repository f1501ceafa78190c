"""Short digests that are equal for equal values, in every process.

Encoding a Struct that omits defaults is not enough: a default is omitted only when it is the very same object, and
two equal numbers or strings need not be. Digests are stored, so fields that a Struct got later count only where they
are set: `LATER_FIELDS` says how many of the last ones these are.
"""

import hashlib
from typing import Any

import msgspec

_SCALARS = frozenset({str, int, bool, float, type(None)})


def digest(value: Any) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(_plain(value)), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        value, later = msgspec.structs.astuple(value), getattr(value, "LATER_FIELDS", 0)
        while later and not value[-1]:
            value, later = value[:-1], later - 1
    if isinstance(value, (tuple, list)):
        return [each if type(each) in _SCALARS else _plain(each) for each in value]
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    return value
