"""Back off after failures: wait longer each time, with jitter so that many clients do not return at once."""

import random

FIRST_S = 0.1
LONGEST_S = 30.0


class Backoff:
    """Counts failures in a row; call `reset` after a success."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self.failures = 0

    def next_s(self, at_least_s: float = 0) -> float:
        """Between half and all of first, 2 x first, 4 x first ... longest; never less than the server asked for."""
        ceiling_s = min(self._longest_s, self._first_s * (1 << min(self.failures, 16)))
        self.failures += 1
        return max(at_least_s, ceiling_s * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        self.failures = 0
