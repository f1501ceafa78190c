"""The health of the scheduling loop: failed cycles, and objects that could not be read.

In:    failures and successes.   Out: counters, and one sentence while nothing can be scheduled.
"""

NOT_READY_AFTER = 3  # cycles that failed in a row


class Health:
    """The health of one loop."""

    def __init__(self) -> None:
        self.failures = 0  # cycles that raised; the log has each
        self.left_out = 0  # objects that could not be read; the log has each
        self._in_a_row = 0
        self._last = ""

    def cycle_failed(self, error: Exception) -> str:
        """Count it. Returns the error in words."""
        self.failures += 1
        self._in_a_row += 1
        self._last = describe_error(error)
        return self._last

    def cycle_ended(self) -> None:
        """A cycle succeeded."""
        self._in_a_row = 0

    @property
    def trouble(self) -> str:
        """Why nothing is scheduled; empty when all is well."""
        if self._in_a_row < NOT_READY_AFTER:
            return ""
        return f"the last {self._in_a_row} scheduling cycles failed, the last one with {self._last}; see the log"


def describe_error(error: Exception) -> str:
    """The kind of error and its message."""
    return f"{type(error).__name__}: {error}"[:300]
