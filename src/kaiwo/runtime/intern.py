"""Names as small numbers, which arrays can hold."""

from bisect import bisect_left

import numpy as np

from kaiwo.snapshot.arrays import IntArray


class Interned:
    """Every name once; its code never changes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}
        self._sorted: list[str] = []
        self._rank: IntArray = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def code(self, name: str) -> int:
        """The name's code, a new one when it is new."""
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found

    def find(self, name: str) -> int | None:
        """The code of a known name."""
        return self._codes.get(name)

    def ranks(self) -> IntArray:
        """By code, the name's place in the alphabet."""
        if len(self._rank) != len(self.names):
            self._sorted = sorted(self.names)
            self._rank = np.empty(len(self.names), np.int64)
            for rank, name in enumerate(self._sorted):
                self._rank[self._codes[name]] = rank
        return self._rank

    def place(self, name: str) -> tuple[int, bool]:
        """The rank that a name has or would have, and whether it has one."""
        self.ranks()
        at = bisect_left(self._sorted, name)
        return at, name in self._codes

    def copy(self) -> "Interned":
        """An independent set of names."""
        other = Interned()
        other.names, other._codes = list(self.names), dict(self._codes)
        return other
