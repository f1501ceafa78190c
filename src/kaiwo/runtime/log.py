"""Write log events as JSON lines to standard error: names and fields, not formatted sentences."""

import asyncio
import datetime
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
PER_PERIOD = 5  # events of one kind
PERIOD_S = 60.0


class _Log:
    least = LEVELS.index("info")  # events below are not written


def emit(event: str, level: str = "info", **fields: object) -> None:
    if level in LEVELS and LEVELS.index(level) < _Log.least:
        return
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
    emit_limited("loop-error", level="error", cause=message, **_error_fields(error))


class JsonHandler(logging.Handler):
    """What libraries log, as lines like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        fields = _error_fields(record.exc_info[1]) if record.exc_info else {}
        emit_limited("library", level=level, cause=record.getMessage()[:500], logger=record.name, **fields)


def begin_logging(level: str = "info") -> None:
    """For a whole process: the least level that is written, and no plain text, whatever fails and whoever logs."""
    _Log.least = LEVELS.index(level)
    root = logging.getLogger()
    root.handlers, root.level = [JsonHandler()], logging.DEBUG if level == "debug" else logging.WARNING
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda failed: _log_uncaught(failed.exc_type, failed.exc_value, failed.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error or kind(), trace)
    else:
        emit("uncaught-error", level="error", cause=f"{kind.__name__}: {error}"[:500], **_error_fields(error))


def _error_fields(error: BaseException | None) -> dict[str, str]:
    if error is None:
        return {}
    return {"error": repr(error)[:500], "trace": "".join(traceback.format_exception(error)[-12:])[-8000:]}
