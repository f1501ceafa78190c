"""How well the loop is: cycles that failed, and objects that could not be taken in.

In:    what went wrong, and what went well.   Out: counts that only ever grow, and one sentence while it is not well.
"""

NOT_READY_AFTER = 3  # cycles that failed in a row: one may be bad luck, this many are not


class Health:
    """Of one loop."""

    def __init__(self) -> None:
        self.failures = 0  # cycles that raised; the log has each
        self.left_out = 0  # objects that raised while they were taken in; the log has each
        self._in_a_row = 0
        self._last = ""

    def cycle_failed(self, error: Exception) -> str:
        """What is to be told of it."""
        self.failures += 1
        self._in_a_row += 1
        self._last = words_of(error)
        return self._last

    def cycle_ended(self) -> None:
        """As it should."""
        self._in_a_row = 0

    @property
    def trouble(self) -> str:
        """Why nothing is scheduled; empty when all is well."""
        if self._in_a_row < NOT_READY_AFTER:
            return ""
        return f"the last {self._in_a_row} scheduling cycles failed, the last one with {self._last}; see the log"


def words_of(error: Exception) -> str:
    """Its kind and its own words."""
    return f"{type(error).__name__}: {error}"[:300]
