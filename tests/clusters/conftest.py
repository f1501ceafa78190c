"""One cluster kind after the other."""

from pathlib import Path

import pytest

from tests.clusters.kinds import KINDS, Kind


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return request.param(tmp_path)
