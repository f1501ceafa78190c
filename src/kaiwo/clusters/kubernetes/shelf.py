"""Objects of one kind by name: the last version that could be read, and why the present one cannot.

In:    what the watch brings, read or with the fault that keeps it from being read.   Out: whether something changed.
Never: forgets a version that could be read because the next one cannot: what was in force stays in force.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shelf(Generic[T]):
    """Queues, or reservations. `look_again` is called when the faults change: workloads may wait because of one."""

    def __init__(self, look_again: Callable[[], None]) -> None:
        self.items: dict[str, T] = {}
        self.faults: dict[str, str] = {}
        self._look_again = look_again

    def put(self, name: str, item: T) -> bool:
        """It is there, or different. False: it was there just so."""
        self._mend(name)
        is_new = self.items.get(name) != item
        self.items[name] = item
        return is_new

    def put_fault(self, name: str, fault: str) -> bool:
        """It cannot be read as it is now. False: that was known."""
        is_new = self.faults.get(name) != fault
        if is_new:
            self.faults[name] = fault
            self._look_again()
        return is_new

    def drop(self, name: str) -> bool:
        """It is gone. False: no version of it was ever read."""
        self._mend(name)
        return self.items.pop(name, None) is not None

    def _mend(self, name: str) -> None:
        if self.faults.pop(name, None) is not None:
            self._look_again()
