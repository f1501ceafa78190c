"""Read quantities and times as the API server writes them: the server has checked them, so what cannot be read is zero.

A cluster writes the same few texts over and over: each is read once and cached. Numbers in annotations are checked here
too, since any program may have written them.
"""

from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any

import msgspec

from kaiwo.manifests.text.field_errors import FieldPath
from kaiwo.manifests.values.quantities import MIB, read_quantity
from kaiwo.model.errors import ConfigError
from kaiwo.model.gpus.gpu_models import RESOURCE_VENDORS
from kaiwo.model.request import MAX_CPU_MILLI, MAX_GPUS, MAX_MIB

MOST = 1 << 54


def is_countable(value: Any) -> bool:
    """Whether all its numbers are small enough to be real amounts of a cluster."""
    if isinstance(value, int):
        return -MOST <= value <= MOST
    if isinstance(value, msgspec.Struct):
        return all(is_countable(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return all(map(is_countable, value))
    return all(map(is_countable, value.values())) if isinstance(value, dict) else True


NO_FIELD = FieldPath("", "quantity")
# The server accepts up to 2**63 of anything, from pods and from nodes: amounts are counted up to this.
MAX_BYTES = MAX_MIB * MIB


@lru_cache(maxsize=4096)
def read_requested(name: str, value: str | int | float) -> int:
    """A requested amount, rounded up and at most `largest_counted`. CPU in milli, memory and disk in bytes."""
    return _whole(name, value, ROUND_CEILING)


@lru_cache(maxsize=4096)
def read_offered(name: str, value: str | int | float) -> int:
    """An amount that a node has, rounded down and at most `largest_counted`."""
    return _whole(name, value, ROUND_FLOOR)


@lru_cache(maxsize=4096)
def read_time_s(timestamp: str | None) -> int:
    """RFC 3339 as whole seconds since the epoch; 0: never."""
    return int(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()) if timestamp else 0


def largest_counted(name: str) -> int:
    """The largest amount that is counted."""
    return MAX_CPU_MILLI if name == "cpu" else MAX_GPUS if name in RESOURCE_VENDORS else MAX_BYTES


def _whole(name: str, value: str | int | float, rounding: str) -> int:
    exact = min(_exact(value) * (1000 if name == "cpu" else 1), Decimal(largest_counted(name)))
    return int(exact.to_integral_value(rounding))


def _exact(value: str | int | float) -> Decimal:
    try:
        return read_quantity(value, NO_FIELD, "4")
    except ConfigError:
        return Decimal(0)
