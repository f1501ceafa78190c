"""Count the connections of the HTTP server, and why some were closed early, for metrics."""

from collections import Counter
from enum import StrEnum


class CloseCause(StrEnum):
    """Why the server closed a connection, or did not take it."""

    SILENT = "silent"  # no whole request arrived in time
    CROWDED = "crowded"  # it had waited longest when another needed its place
    REFUSED = "refused"  # there was no place for it
    SLOW_READER = "slow-reader"  # it did not read its answer
    SLOW_SENDER = "slow-sender"  # it did not finish a request that was answered already
    NO_DESCRIPTORS = "no-descriptors"  # the process or the machine has no file descriptor left


class ConnectionCounts:
    def __init__(self) -> None:
        self.open = 0
        self.closed: Counter[CloseCause] = Counter(dict.fromkeys(CloseCause, 0))
