"""A pytest plugin that notes which test reaches which line of the pure core, and writes it down at the end."""

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.conftest import ROOT

CORE = tuple(str(ROOT / "src" / "kaiwo" / package) + os.sep for package in ("decide", "queues", "gpus", "snapshot"))
_lines: dict[str, set[int]] = defaultdict(set)  # of the test that runs now
_reached: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
_took: dict[str, float] = {}


def _trace(frame: FrameType, event: str, _: Any) -> Any:
    file = frame.f_code.co_filename
    if not file.startswith(CORE):
        return None
    seen = _lines[file]

    def line(frame: FrameType, event: str, _: Any) -> Any:
        seen.add(frame.f_lineno)
        return line

    seen.add(frame.f_lineno)
    return line


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _lines.clear()
    sys.settrace(_trace)
    threading.settrace(_trace)
    yield
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    for file, lines in _lines.items():
        for number in lines:
            _reached[file][number].add(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid] = _took.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """The tests once, quickest first, and by file and line their numbers in that list."""
    tests = sorted(_took, key=lambda test: (_took[test], test))
    number_of = {test: number for number, test in enumerate(tests)}
    lines = {
        file: {line: sorted(number_of[test] for test in some) for line, some in lines.items()}
        for file, lines in _reached.items()
    }
    Path(os.environ["KAIWO_REACHED"]).write_text(json.dumps({"tests": tests, "lines": lines}))
