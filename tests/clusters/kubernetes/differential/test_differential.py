"""kube-scheduler and Kaiwo judge the same nodes feasible, for every generated pod."""

import asyncio
import secrets

import pytest

from tests.clusters.kubernetes.differential.compare import compare
from tests.clusters.kubernetes.differential.rules import BY_NAME
from tests.clusters.kubernetes.differential.tally import tally
from tests.conftest import IS_FULL
from tests.controlplane.plane import Plane

WORLDS, PODS = 10, 60
LEAST = 500


@pytest.mark.serial
def test_both_schedulers_judge_the_same_nodes_feasible(plane: Plane, test_size: int) -> None:
    """The same worlds each time; in a full run ten times as many, and new ones."""
    first = secrets.randbelow(1_000_000) if IS_FULL else 0
    print(f"seeds from {first}")
    cases = asyncio.run(compare(plane, range(first, first + WORLDS * test_size), PODS))
    differences = [case.difference() for case in cases if not case.agrees]
    assert not differences, f"{len(differences)} of {len(cases)} differ:\n" + "\n".join(differences[:5])
    assert len(cases) >= LEAST * test_size
    assert any(case.theirs != case.ours for case in cases), "no selector that only excludes was tried"
    covered = tally(cases)
    assert covered.keys() == {*BY_NAME, "volume"}
    for rule, counts in covered.items():
        assert counts["somewhere"] >= 10, f"{rule} is hardly tried: {counts}"
        assert counts["nowhere"] >= 5, f"{rule} is hardly tried: {counts}"
