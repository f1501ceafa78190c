"""Which method a share gets, what that is worth, and the words of a refusal."""

import itertools

import pytest

from bench._isolation_guarantees import ESCAPES, GUARANTEES
from kaiwo.devices.sharing.isolation_method import IsolationChoice, choose_isolation, dmem_region, oversubscription
from kaiwo.devices.sharing.share_types import GpuDevice, GrantRequest, IsolationSupport, Refusal, devices_by_id
from kaiwo.model.gpus.gpu import GRADE_RANKS, Share, is_grade_enough
from tests.devices.fake_inventory import fake_inventory

AMD = GpuDevice("0000:05:00.0", "amd", 0, "", "0000:05:00.0", 196_608, 304, 8, "gfx942")
XCP = GpuDevice("0000:05:00.0-p1", "amd", 1, "", "0000:05:00.0", 24_576, 38, 1, "gfx942", True)
RADEON = GpuDevice("0000:09:00.0", "amd", 0, "", "0000:09:00.0", 16_384, 60, 1, "gfx1101")
NVIDIA = GpuDevice("0000:06:00.0", "nvidia", 0, "GPU-1", "0000:06:00.0", 143_771, 132)
BARE = IsolationSupport()
FULL = IsolationSupport("/usr/bin/nvidia-cuda-mps-control", (dmem_region(AMD),))
CONTAINERS = IsolationSupport("/usr/bin/nvidia-cuda-mps-control", (dmem_region(AMD),), in_containers=True)


def chosen(
    device: GpuDevice, milli: int = 500, platform: IsolationSupport = FULL, **wish: object
) -> IsolationChoice | Refusal:
    share = Share(device.id, milli, device.memory_mib * milli // 1000)
    return choose_isolation(GrantRequest("w", (share,), **wish), share, device, platform)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "milli", "platform", "isolation", "method", "grade"),
    [
        (AMD, 1000, BARE, "", "whole", "partition"),
        (XCP, 1000, BARE, "", "partition", "partition"),
        (XCP, 1000, BARE, "partition", "partition", "partition"),
        (NVIDIA, 500, FULL, "", "mps", "mps"),
        (NVIDIA, 500, FULL, "mps", "mps", "mps"),
        (NVIDIA, 500, FULL, "time-slicing", "time-slicing", "time-slicing"),
        (NVIDIA, 500, BARE, "", "time-slicing", "time-slicing"),
        (AMD, 500, BARE, "", "cu-mask", "cu-mask"),
        (AMD, 500, FULL, "", "cu-mask", "memory-capped"),
        (AMD, 500, CONTAINERS, "", "cu-mask", "cu-mask"),
        (AMD, 500, FULL, "time-slicing", "time-slicing", "time-slicing"),
        (AMD, 10, FULL, "", "time-slicing", "time-slicing"),
        (XCP, 500, FULL, "cu-mask", "cu-mask", "cu-mask"),
        (RADEON, 500, FULL, "", "time-slicing", "time-slicing"),
    ],
)
def test_the_best_there_is_or_what_was_named(
    device: GpuDevice, milli: int, platform: IsolationSupport, isolation: str, method: str, grade: str
) -> None:
    found = chosen(device, milli, platform, isolation=isolation)
    assert isinstance(found, IsolationChoice)
    assert (found.method, found.grade) == (method, grade)


def test_mps_on_amd_is_refused_with_the_alternatives() -> None:
    refused = chosen(AMD, isolation="mps")
    assert isinstance(refused, Refusal)
    assert all(word in refused.reason for word in ("have no MPS", "cu-mask", "partition", "time-slicing"))


def test_a_share_that_is_too_small_for_a_mask_is_refused() -> None:
    tiny = chosen(AMD, 10, isolation="cu-mask")
    assert isinstance(tiny, Refusal)
    assert "0.027 of the GPU" in tiny.reason


@pytest.mark.parametrize(
    ("device", "platform", "isolation", "words"),
    [
        (NVIDIA, FULL, "cu-mask", "AMD GPUs only"),
        (NVIDIA, BARE, "mps", "not installed"),
        (AMD, FULL, "partition", "is not a partition"),
        (RADEON, FULL, "cu-mask", "gfx1101"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    device: GpuDevice, platform: IsolationSupport, isolation: str, words: str
) -> None:
    refused = chosen(device, platform=platform, isolation=isolation)
    assert isinstance(refused, Refusal)
    assert words in refused.reason


def test_a_demanded_grade_is_met_or_refused() -> None:
    devices, platforms = (AMD, XCP, NVIDIA, RADEON), (BARE, FULL, CONTAINERS)
    for device, platform, milli, least in itertools.product(devices, platforms, (10, 500, 1000), GRADE_RANKS):
        found = chosen(device, milli, platform, least_grade=least)
        if isinstance(found, IsolationChoice):
            assert is_grade_enough(found.grade, least)
        else:
            best = chosen(device, milli, platform)
            assert isinstance(best, IsolationChoice)
            assert not is_grade_enough(best.grade, least)
            assert least in found.reason
            assert best.grade in found.reason


def test_the_order_of_the_grades_is_the_designs() -> None:
    ranks = [GRADE_RANKS[grade] for grade in ("partition", "memory-capped", "cu-mask", "time-slicing", "none")]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 5
    assert GRADE_RANKS["mps"] == GRADE_RANKS["cu-mask"]


def test_an_amd_gpu_takes_eleven_processes_or_24_queues() -> None:
    assert oversubscription("amd", 11, 24) == ""
    assert "12 processes" in oversubscription("amd", 12)
    assert "25 queues" in oversubscription("amd", 2, 25)
    assert oversubscription("nvidia", 40, 400) == ""


def test_every_promise_is_about_a_way_that_is_told() -> None:
    assert set(GUARANTEES) <= set(GRADE_RANKS)
    for promises in GUARANTEES.values():
        assert set(promises) <= set(ESCAPES)
    assert len(GUARANTEES["mps"]) >= 8


def test_devices_are_found_by_the_schedulers_names() -> None:
    parts = devices_by_id(fake_inventory(count=2, mode=("CPX", "NPS4")))
    assert len(parts) == 16
    one = next(iter(parts.values()))
    assert (one.compute_units, one.xcds, one.is_partition) == (38, 1, True)
