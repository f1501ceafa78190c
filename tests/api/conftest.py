"""What a test has started ends with it: runs outlive the Kaiwo that started them, by design."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.product import supervisors


@pytest.fixture(autouse=True)
def end_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    home: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    for folder in home.rglob("runs") if home is not None else ():
        for pid in supervisors(folder.parent):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # it stops the command
