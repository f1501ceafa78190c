"""Compute-unit masks: written so that ROCr obeys them, and never two tenants on one unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.sharing.cu_mask import (
    choose_units,
    least_milli,
    mask_variables,
    unit_count,
    why_unmaskable,
    write_mask,
)
from kaiwo.devices.sharing.share_types import GpuDevice
from tests.devices.sharing.rocr_mask import parse_mask

MI300X = GpuDevice("0000:05:00.0", "amd", 0, compute_units=304, xcds=8, target="gfx942")
PARTITION = GpuDevice("0000:05:00.0-p3", "amd", 3, compute_units=38, xcds=1, target="gfx942", is_partition=True)
MI210 = GpuDevice("0000:25:00.0", "amd", 0, compute_units=104, xcds=1, target="gfx90a")
MI300A = GpuDevice("0000:01:00.0", "amd", 0, compute_units=228, xcds=6, target="gfx942")
DEVICES = (MI300X, PARTITION, MI210, MI300A)

units = st.frozensets(st.integers(0, 303), min_size=1)
masks = st.dictionaries(st.integers(0, 63), units, min_size=1, max_size=8)


@given(masks)
def test_what_is_written_is_read_back(mask: dict[int, frozenset[int]]) -> None:
    text = write_mask(mask)
    assert parse_mask(text) == mask
    assert set(text) <= set("0123456789-,:;")


@given(st.text(alphabet="0123456789-,:;xXaF ", max_size=40))
def test_any_text_is_read_up_to_its_first_mistake(text: str) -> None:
    found = parse_mask(text)
    assert all(of for of in found.values())
    assert parse_mask(write_mask(found)) == found if found else True


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0:0-3", {0: {0, 1, 2, 3}}),
        ("0,2-3:0x5", {0: {0, 2}, 2: {0, 2}, 3: {0, 2}}),
        ("0:0-1; 1:4", {0: {0, 1}, 1: {4}}),  # AMD's own example has the space
        ("0:0-1;0:4", {0: {0, 1}}),  # a GPU twice
        ("0:0-3,2", {}),  # a unit twice
        ("0:0x0", {}),  # no unit at all
        ("0:3-1", {}),
        ("GPU-abc:0-3", {}),
        ("0:0-1;junk;1:0", {0: {0, 1}}),
        ("", {}),
    ],
)
def test_the_grammar_is_that_of_rocr(text: str, found: dict[int, set[int]]) -> None:
    assert parse_mask(text) == found


@given(st.sampled_from(DEVICES), st.lists(st.integers(10, 1000), max_size=40))
def test_no_unit_is_given_twice_and_every_xcd_has_as_many(device: GpuDevice, wishes: list[int]) -> None:
    """Whatever is asked for in whatever order, while the sum is at most the GPU."""
    taken: set[int] = set()
    left = 1000
    for milli in wishes:
        if milli > left or not unit_count(device, milli):
            continue
        left -= milli
        found = choose_units(device, milli, taken)
        assert len(found) == unit_count(device, milli), "what the ledger admits has a mask"
        assert not taken & set(found)
        assert max(found) < device.compute_units
        each = [sum(unit % device.xcds == xcd for unit in found) for xcd in range(device.xcds)]
        assert len(set(each)) == 1
        assert each[0] >= 1
        taken |= set(found)


def test_a_share_that_leaves_makes_room_in_the_middle() -> None:
    first, second = choose_units(MI210, 300, ()), choose_units(MI210, 300, range(31))
    assert (first, second) == (tuple(range(31)), tuple(range(31, 62)))
    third = choose_units(MI210, 600, second)
    assert write_mask({0: third}) == "0:0-30,62-92"


def test_a_share_smaller_than_one_unit_on_each_xcd_has_no_mask() -> None:
    assert (unit_count(MI300X, 26), unit_count(MI300X, 27), least_milli(MI300X)) == (0, 8, 27)
    assert choose_units(MI300X, 26, ()) == ()
    assert choose_units(MI300X, 500, range(160)) == ()  # 152 are its half; 144 are free


@pytest.mark.parametrize("device", DEVICES)
def test_the_least_share_is_the_least(device: GpuDevice) -> None:
    least = least_milli(device)
    assert unit_count(device, least) == device.xcds
    assert unit_count(device, least - 1) == 0


def test_one_mask_for_all_devices_is_told_to_hip_too() -> None:
    half = choose_units(MI300X, 500, ())
    assert mask_variables([half])["HSA_CU_MASK"] == "0:0-151"
    assert int(mask_variables([half])["ROC_GLOBAL_CU_MASK"], 16) == (1 << 152) - 1
    assert mask_variables([half, half]).keys() == {"HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"}
    assert mask_variables([half, choose_units(MI300X, 500, half)]) == {"HSA_CU_MASK": "0:0-151;1:152-303"}
    assert mask_variables([half, ()]) == {"HSA_CU_MASK": "0:0-151"}
    assert mask_variables([(), ()]) == {}


def test_what_cannot_be_masked_says_why() -> None:
    assert why_unmaskable(MI300X) == ""
    assert "AMD GPUs only" in why_unmaskable(GpuDevice("x", "nvidia"))
    assert "gfx1101" in why_unmaskable(GpuDevice("x", "amd", compute_units=60, target="gfx1101"))
    assert "unknown" in why_unmaskable(GpuDevice("x", "amd", target="gfx942"))
