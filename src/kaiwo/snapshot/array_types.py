"""Names for the array types; arrays and objects that can only be read."""

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

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


class ReadOnly:
    """An object whose attributes are set when it is made, and never again."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`{name}` was not set: {type(self).__name__} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"`{name}` was not deleted: {type(self).__name__} is read-only")
