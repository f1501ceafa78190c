"""Names for the array types, so that signatures read as words, and a way to show one that nobody may write."""

from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.intp]  # positions of nodes (or queues) in their table

Array = TypeVar("Array", IntArray, BoolArray, Rows)


def freeze(array: Array) -> None:
    """From here on whoever writes to it gets an error."""
    array.setflags(False)  # type: ignore[call-arg]  # by position it costs half as much as by name


def read_only(array: Array) -> Array:
    """The same memory, to be looked at: whoever writes to it gets an error, and not somebody else's numbers."""
    seen = array.view()
    freeze(seen)
    return seen
