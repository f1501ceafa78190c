"""This machine's shares: the isolation that was asked for is what a run gets, or the reason why it does not begin."""

from pathlib import Path

import pytest

from kaiwo.devices.discover import discover
from kaiwo.devices.sharing.words import Platform
from kaiwo.gpus.isolation import grade_of
from kaiwo.model.gpu import Share
from kaiwo.model.request import Request
from kaiwo.runtime.machine import node_of
from kaiwo.runtime.shares import MachineShares
from tests.devices.trees import Box, address, write_box

HALF = (Share(address(0), 500, 98_304),)


@pytest.fixture
def shares(tmp_path: Path) -> MachineShares:
    root = write_box(tmp_path / "tree", Box(gpus=1))
    return MachineShares(tmp_path / "sharing", lambda: discover(str(root), has_telemetry=False))


def test_the_grade_of_a_run_is_known_until_it_is_over(shares: MachineShares) -> None:
    assert shares.grade_of("run") == ""
    kept = shares.prepare("run", HALF)
    assert "HSA_CU_MASK" in kept.env
    assert shares.grade_of("run") == "cu-mask"
    shares.release("run")
    assert shares.grade_of("run") == ""


def test_a_method_that_was_named_is_taken(shares: MachineShares) -> None:
    kept = shares.prepare("run", HALF, "time-slicing")
    assert "HSA_CU_MASK" not in kept.env
    assert shares.grade_of("run") == "time-slicing"


@pytest.mark.parametrize(("isolation", "least"), [("mps", ""), ("", "memory-capped"), ("time-slicing", "cu-mask")])
def test_what_cannot_be_had_is_the_reason(shares: MachineShares, isolation: str, least: str) -> None:
    with pytest.raises(OSError, match=r"no MPS on AMD|at least (memory-capped|cu-mask) is asked for"):
        shares.prepare("run", HALF, isolation, least)


def test_a_node_tells_the_grade_that_its_machine_has(tmp_path: Path) -> None:
    found = discover(str(write_box(tmp_path, Box(gpus=2))), has_telemetry=False)
    regions = tuple(f"drm/{address(gpu)}/vram" for gpu in range(2))
    for platform, grade in ((Platform(), "cu-mask"), (Platform(dmem_regions=regions), "memory-capped")):
        node = node_of(found, platform)
        assert node is not None
        assert {gpu.share_grade for gpu in node.gpus} == {grade}
        assert grade_of(Request(gpus=1, gpu_milli=500), node.gpus[0], node.labels) == grade
