"""How well a share is kept apart: worked out before it is placed, required by those who ask, and told afterwards."""

import pytest
from msgspec.structs import replace

from kaiwo.devices.sharing.isolation_method import IsolationChoice, choose_isolation
from kaiwo.devices.sharing.share_types import GpuDevice, GrantRequest, IsolationSupport
from kaiwo.gpus.isolation_grades import grade_of, smallest_masked_milli
from kaiwo.model.gpus.gpu import GRADE_RANKS, SHARE_GRADE_LABEL, Gpu, Share, is_grade_enough
from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.obstacle import Reason
from kaiwo.model.request import Request
from tests.worlds import World

MI300X, H200 = Gpu("gpu-0", "MI300X", 196_608), Gpu("gpu-0", "H200", 144_384)
HALF = Request(gpus=1, gpu_milli=500)


@pytest.mark.parametrize(
    ("want", "gpu", "label", "grade"),
    [
        (Request(gpus=1), MI300X, "", "partition"),
        (Request(gpus=1, partition="CPX"), MI300X, "", "partition"),
        (HALF, MI300X, "", "cu-mask"),
        (HALF, H200, "", "mps"),
        (HALF, Gpu("gpu-0", "unheard", 1), "", "time-slicing"),
        (HALF, MI300X, "memory-capped", "memory-capped"),
        (HALF, H200, "time-slicing", "time-slicing"),
        (HALF, H200, "nonsense", "mps"),
        (replace(HALF, isolation="time-slicing"), MI300X, "", "time-slicing"),
        (replace(HALF, isolation="cu-mask"), MI300X, "memory-capped", "memory-capped"),
        (replace(HALF, isolation="mps"), H200, "time-slicing", ""),
        (replace(HALF, isolation="mps"), MI300X, "", ""),
        (replace(HALF, isolation="partition"), MI300X, "", ""),
        (replace(HALF, gpu_milli=20), MI300X, "", "time-slicing"),
        (replace(HALF, gpu_milli=20, isolation="cu-mask"), MI300X, "", ""),
        (Request(gpus=1, gpu_mib=98_304), MI300X, "", "cu-mask"),
        (Request(gpus=1, gpu_mib=1_000), MI300X, "", "time-slicing"),
    ],
)
def test_the_grade_follows_from_the_request_and_the_node(want: Request, gpu: Gpu, label: str, grade: str) -> None:
    assert grade_of(want, gpu, {SHARE_GRADE_LABEL: label} if label else {}) == grade


@pytest.mark.parametrize("milli", [10, 26, 27, 100, 500, 999])
@pytest.mark.parametrize("isolation", ["", "cu-mask", "time-slicing"])
@pytest.mark.parametrize("model", sorted(CHIPS))
def test_the_scheduler_and_the_machine_say_the_same(model: str, isolation: str, milli: int) -> None:
    """What the filter expects of an AMD GPU is what the writer on its machine chooses."""
    chip = CHIPS[model]
    mib = GPU_MODELS[model].memory_mib
    device = GpuDevice("gpu-0", "amd", 0, "", "", mib, chip.compute_units, chip.xcds, "gfx942")
    share = Share("gpu-0", milli, mib * milli // 1000)
    found = choose_isolation(GrantRequest("me", (share,), isolation), share, device, IsolationSupport())
    expected = grade_of(Request(gpus=1, gpu_milli=milli, isolation=isolation), Gpu("gpu-0", model, mib), {})
    assert (found.grade if isinstance(found, IsolationChoice) else "") == expected


def test_a_whole_partition_is_a_partition_though_its_milli_are_few() -> None:
    device = GpuDevice("gpu-0-p0", "amd", 0, "", "", 24_576, 38, 1, "gfx942", is_partition=True)
    share = Share("gpu-0-p0", 125, 24_576)
    assert choose_isolation(GrantRequest("me", (share,)), share, device, IsolationSupport()) == IsolationChoice(
        "partition", "partition"
    )


def test_the_smallest_mask_of_an_mi300x() -> None:
    assert smallest_masked_milli("MI300X") == 27


def test_grades_have_an_order() -> None:
    assert is_grade_enough("partition", "memory-capped")
    assert is_grade_enough("mps", "cu-mask")
    assert is_grade_enough("cu-mask", "mps")
    assert not is_grade_enough("time-slicing", "mps")
    assert all(is_grade_enough(grade, "") for grade in GRADE_RANKS)


def test_who_asks_for_more_than_a_node_has_waits_with_that_reason_and_starts_elsewhere() -> None:
    world = World(nodes=1)
    world.submit("strict", request=replace(HALF, least_grade="memory-capped")).settle()
    assert world.why("strict") == [Reason.GPU_ISOLATION]
    world.node("capped", labels={SHARE_GRADE_LABEL: "memory-capped"}).settle()
    assert world.nodes_of("strict") == ["capped"]


def test_whole_gpus_and_partitions_meet_every_grade() -> None:
    world = World(nodes=1)
    world.submit("whole", request=Request(gpus=1, least_grade="partition")).settle()
    assert world.is_running("whole")
