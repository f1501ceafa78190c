"""A sorted line of waiting workloads, cheap at both the head and the middle."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeAlias

Place: TypeAlias = tuple[tuple[tuple[int, ...], ...], str]  # a key from each order, then the name: a total order


class Line:
    """Places in order. Leaving at the head only moves a mark; the list is trimmed when half of it is gone."""

    __slots__ = ("_head", "_places")

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._places) - self._head

    def __iter__(self) -> Iterator[Place]:
        for at in range(self._head, len(self._places)):
            yield self._places[at]

    def at(self, position: int) -> Place:
        """The place at a position, the head being 0."""
        return self._places[self._head + position]

    def join(self, place: Place) -> None:
        """Stand where the order says."""
        if len(self) == 0 or place > self._places[-1]:
            self._places.append(place)
        else:
            insort(self._places, place, lo=self._head)

    def leave(self, place: Place) -> None:
        """Leave from wherever one stands."""
        at = bisect_left(self._places, place, lo=self._head)
        if at == self._head:
            self._head += 1
            if self._head > 64 and self._head * 2 > len(self._places):
                del self._places[: self._head]
                self._head = 0
        else:
            del self._places[at]

    def position(self, place: Place) -> int:
        """How many stand before this place."""
        return bisect_left(self._places, place, lo=self._head) - self._head

    def copy(self) -> "Line":
        """An independent line."""
        other = Line()
        other._places = self._places[self._head :]
        return other
