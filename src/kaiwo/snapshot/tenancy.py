"""Which shared devices have tenants who demand to be kept apart, and which have tenants without a limit of their own.

In:    shares, as they come and go.   Out: counts by device; most devices have neither.
How small a share must be to have no mask depends on the model: small ones are counted by size, and `gpus.apart` judges.
"""

from collections.abc import Hashable
from typing import TypeAlias, TypeVar

from kaiwo.model.isolation import DEMANDS, SMALL_MILLI, TURNS

Place: TypeAlias = tuple[int, int]  # row of the node, column of the device
_Key = TypeVar("_Key", bound=Hashable)


class Tenancy:
    """Of one table of nodes."""

    __slots__ = ("demanding", "small")

    def __init__(self) -> None:
        self.demanding: dict[Place, int] = {}
        self.small: dict[tuple[int, int, int], int] = {}  # place, and milli; 0: takes turns, whatever its size

    def change(self, row: int, column: int, beside: str, milli: int, sign: int) -> None:
        """One tenant more, or less."""
        if beside == DEMANDS:
            _count(self.demanding, (row, column), sign)
        elif beside == TURNS or milli < SMALL_MILLI:
            _count(self.small, (row, column, 0 if beside == TURNS else milli), sign)

    def forget(self, row: int) -> None:
        """Nobody is on this node."""
        if self.demanding or self.small:
            self.demanding = {place: count for place, count in self.demanding.items() if place[0] != row}
            self.small = {place: count for place, count in self.small.items() if place[0] != row}

    def copy(self) -> "Tenancy":
        """Independent counts."""
        other = Tenancy()
        other.demanding, other.small = self.demanding.copy(), self.small.copy()
        return other


def _count(counts: dict[_Key, int], key: _Key, sign: int) -> None:
    left = counts[key] = counts.get(key, 0) + sign
    if not left:
        del counts[key]
