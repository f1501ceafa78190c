from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.sites import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    for each in made.sets:
        each.close()
