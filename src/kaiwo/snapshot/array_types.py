"""Names for the array types, and read-only arrays."""

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.intp]  # positions of nodes (or queues) in their table

Array = TypeVar("Array", IntArray, BoolArray, Rows)


def freeze(array: Array) -> None:
    """From now on writing to it raises an error."""
    array.setflags(False)  # type: ignore[call-arg]  # by position it costs half as much as by name


def read_only(array: Array) -> Array:
    """A view of the same memory that cannot be written."""
    seen = array.view()
    freeze(seen)
    return seen
