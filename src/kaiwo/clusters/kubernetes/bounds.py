"""Numbers that stand in annotations: anybody who may write the object may have written them.

In:    what was decoded.   Out: whether it can be counted.
The core counts in 64 bits, in sums over many objects: what is larger is stopped here, at the edge.
"""

from typing import Any

import msgspec

MOST = 1 << 54


def is_countable(value: Any) -> bool:
    """No number in it is larger than anything that a cluster has."""
    if isinstance(value, int):
        return -MOST <= value <= MOST
    if isinstance(value, msgspec.Struct):
        return all(is_countable(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return all(map(is_countable, value))
    return all(map(is_countable, value.values())) if isinstance(value, dict) else True
