"""All that a process of Kaiwo writes is a line of JSON, whoever writes it, from the level that was asked for."""

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import logging, sys, threading, warnings
from kaiwo.runtime.log import begin_logging, emit
begin_logging({level!r})
for level in ("debug", "info", "warning", "error"):
    emit("said", level=level)
logging.getLogger("some.library").warning("it was %s", "odd")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("some.library").exception("it broke")
thread = threading.Thread(target=lambda: [][1])
thread.start()
thread.join()
raise RuntimeError("the end")
"""


def written(level: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", PROGRAM.format(level=level)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_no_line_is_plain_text_and_each_traceback_has_its_cause() -> None:
    lines = written("info")
    assert [line["level"] for line in lines if line["event"] == "said"] == ["info", "warning", "error"]
    odd, broke = [line for line in lines if line["event"] == "library"]
    assert (odd["level"], odd["logger"], odd["cause"]) == ("warning", "some.library", "it was odd")
    assert broke["error"] == "ZeroDivisionError('division by zero')"
    uncaught = [line for line in lines if line["event"] == "uncaught-error"]
    assert [line["cause"] for line in uncaught] == ["IndexError: list index out of range", "RuntimeError: the end"]
    assert all("Traceback" in line["trace"] for line in (broke, *uncaught))
    assert {"at", "level", "event"} <= set.intersection(*(set(line) for line in lines))


def test_the_level_decides_what_is_written() -> None:
    assert [line["level"] for line in written("error") if line["event"] == "said"] == ["error"]
    assert [line["level"] for line in written("debug") if line["event"] == "said"] == [
        "debug",
        "info",
        "warning",
        "error",
    ]
