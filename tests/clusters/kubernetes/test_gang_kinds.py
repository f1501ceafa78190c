"""A gang of every kind on a real API server with the kind's real definition: nothing starts before it is whole."""

from pathlib import Path

import pytest

from kaiwo.clusters.kubernetes.writers import event_writer
from tests.clusters.kubernetes.gang_kinds import GANG_KINDS
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.conftest import find_shared_dir
from tests.controlplane.plane import Plane
from tests.waiting import run

CRDS = find_shared_dir() / "fixtures" / "crds"


@pytest.fixture(scope="module")
def kinds(alpha_plane: Plane) -> Plane:
    """The server with every definition that is there."""
    files = [CRDS / f"{name}.yaml" for kind in GANG_KINDS.values() for name in kind.crds]
    there = [f"--filename={path}" for path in files if path.exists()]
    if there:
        alpha_plane.kubectl("apply", "--server-side", *there)
        alpha_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *there)
    return alpha_plane


@pytest.mark.parametrize("name", GANG_KINDS)
def test_a_gang_waits_until_it_is_whole_and_starts_then(
    kinds: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind = GANG_KINDS[name]
    if missing := [file for file in kind.crds if not (CRDS / f"{file}.yaml").exists()]:
        pytest.skip(f"the definition of {name} is not there ({CRDS / missing[0]}.yaml)")
    monkeypatch.setattr(event_writer, "BLOCKED_S", 0.3)  # how long a sentence must be true before it is written

    async def test() -> None:
        async with scheduled(kinds, tmp_path) as kubectl:
            await kubectl.node("node-1")
            *first, last = await kind.prepare(kubectl)
            made = [await make() for make in first]
            for pod in made:
                await until_said(kubectl, pod["metadata"]["name"], "2 of the 3 that start together do")
                assert "nodeName" not in (await kubectl.read_pod(pod["metadata"]["name"]))["spec"]
            made.append(await last())
            for pod in made:
                await until_bound(kubectl, pod["metadata"]["name"])

    run(test())
