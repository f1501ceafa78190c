"""Quantities as the API server writes them. It has checked them, so what cannot be read counts as nothing.

In:    "500m", "16Gi", 4.   Out: integers: milli-CPU, bytes, whole numbers.
A cluster writes the same few texts over and over: each is worked out once.
"""

from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from kaiwo.manifests.gpu_models import RESOURCE_VENDORS
from kaiwo.manifests.places import Place
from kaiwo.manifests.quantities import MIB, read_quantity
from kaiwo.model.errors import ConfigError

NOWHERE = Place("", "quantity")
MOST_CPU_MILLI, MOST_BYTES, MOST_GPUS = 1 << 34, 1 << 54, 1 << 24


@lru_cache(maxsize=4096)
def asked(name: str, value: str | int | float) -> int:
    """A request: never less than was asked for. CPU in milli, memory and disk in bytes.

    The server lets people ask for 2**63 of anything: more than any cluster has is as good as that, and can be counted.
    """
    exact = int((_exact(value) * (1000 if name == "cpu" else 1)).to_integral_value(ROUND_CEILING))
    return min(exact, MOST_CPU_MILLI if name == "cpu" else MOST_GPUS if name in RESOURCE_VENDORS else MOST_BYTES)


@lru_cache(maxsize=4096)
def offered(name: str, value: str | int | float) -> int:
    """An amount that a node has: never more than there is."""
    return int((_exact(value) * (1000 if name == "cpu" else 1)).to_integral_value(ROUND_FLOOR))


def offered_mib(value: str | int | float) -> int:
    """A node's memory."""
    return offered("memory", value) // MIB


@lru_cache(maxsize=4096)
def seconds(timestamp: str | None) -> int:
    """RFC 3339 as whole seconds since the epoch; 0: never."""
    if not timestamp:
        return 0
    return int(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp())


def _exact(value: str | int | float) -> Decimal:
    try:
        return read_quantity(value, NOWHERE, "4")
    except ConfigError:
        return Decimal(0)
