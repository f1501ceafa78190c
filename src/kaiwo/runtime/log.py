"""Write log events as JSON lines to standard error: names and fields, not formatted sentences."""

import datetime
import json
import sys


def emit(event: str, level: str = "info", **fields: object) -> None:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(json.dumps({"at": at, "level": level, "event": event, **fields}, default=str) + "\n")
