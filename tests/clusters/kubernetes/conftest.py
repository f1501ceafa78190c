"""One real control plane for all these tests, one more for alpha kinds; where it was not built, they are skipped.

Its tests carry the marks `real` and `slow`: they run one at a time, so that the server is started once.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.plane import POD_GROUPS, MissingError, Plane, find_programs, running_plane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """etcd and an API server on loopback."""
    yield from _running(tmp_path_factory.mktemp("plane"))


@pytest.fixture(scope="module")
def alpha_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Another one, whose server has the PodGroup and Workload API too."""
    yield from _running(tmp_path_factory.mktemp("alpha"), *POD_GROUPS)


def _running(folder: Path, *server_options: str) -> Iterator[Plane]:
    try:
        find_programs()
    except MissingError as error:
        pytest.skip(str(error))
    with running_plane(folder, *server_options) as found:
        yield found


@pytest.fixture
def namespace(plane: Plane, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = "t-" + "".join(sign if sign.isalnum() else "-" for sign in request.node.name.lower())[5:60].strip("-")
    plane.kubectl("create", "namespace", name)
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"plane", "alpha_plane"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.slow)
