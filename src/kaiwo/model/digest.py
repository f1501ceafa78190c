"""One short name for equal values, the same in every process.

Encoding a Struct that leaves out defaults is not enough: a default is left out when it is the very same object, and two
equal numbers or strings need not be.
"""

import hashlib
from typing import Any

import msgspec


def digest(value: Any) -> str:
    """Equal values have equal digests, whoever made them."""
    return hashlib.blake2b(msgspec.msgpack.encode(_plain(value)), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    """Every field, in order; dicts sorted."""
    if isinstance(value, msgspec.Struct):
        return [_plain(field) for field in msgspec.structs.astuple(value)]
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return sorted((key, _plain(each)) for key, each in value.items())
    return value
