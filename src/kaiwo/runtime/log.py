"""Write log events as JSON lines to standard error: names and fields, not formatted sentences."""

import asyncio
import datetime
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

PER_PERIOD = 5  # events of one kind
PERIOD_S = 60.0


def emit(event: str, level: str = "info", **fields: object) -> None:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(json.dumps({"at": at, "level": level, "event": event, **fields}, default=str) + "\n")


class EventLimit:
    """Writes the first few events of a kind in each minute, and then says how many more there were."""

    def __init__(self, write: Callable[..., None] = emit, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._began_s: dict[tuple[str, str], float] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def emit(self, event: str, level: str = "info", **fields: object) -> None:
        """`cause` in the fields makes it a kind of its own."""
        kind = (event, str(fields.get("cause", "")))
        self._began_s.setdefault(kind, self._clock())
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= PER_PERIOD:
            self._write(event, level=level, **fields)

    def flush(self, is_last: bool = False) -> None:
        """End the periods that are over. `is_last`: all of them."""
        now_s = self._clock()
        for kind, began_s in list(self._began_s.items()):
            if now_s - began_s < PERIOD_S and not is_last:
                continue
            event, cause = kind
            more = self._counts.pop(kind) - PER_PERIOD
            del self._began_s[kind]
            if more > 0:
                last_s = round(now_s - began_s)
                self._write(
                    event, level="warning", **({"cause": cause} if cause else {}), more=more, in_the_last_s=last_s
                )


_limit = EventLimit()
emit_limited = _limit.emit
flush_limited = _limit.flush


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `set_exception_handler`: asyncio would write a traceback for every error, however many there are."""
    error, message = context.get("exception"), str(context.get("message", ""))
    trace = "".join(traceback.format_exception(error)[-12:])[-8000:] if error is not None else ""
    emit_limited("loop-error", level="error", cause=message, error=repr(error)[:500], trace=trace)
