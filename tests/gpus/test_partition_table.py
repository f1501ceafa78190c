"""Every combination of model, place, XCDs, compute and memory mode, against the driver's own conditions."""

from itertools import product

from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import (
    COMPUTE_MODES,
    MEMORY_MODES,
    Mode,
    Platform,
    legal_modes,
    next_modes,
    partition_count,
    partition_shape,
    platforms,
)
from tests.devices.amd.fake_amdgpu_driver import kernel_allows

PLACES: tuple[Platform, ...] = ("bare-metal", "vf", "apu")
WORDS = (*COMPUTE_MODES, "", "XPX")
MEMORIES = (*MEMORY_MODES, "NPS3", "")


def is_allowed(model: str, place: Platform, compute: str, memory: str) -> bool:
    """By the driver and the chip: where it runs, and what its memory can do."""
    chip = CHIPS[model]
    if (place == "apu") != chip.is_apu or compute not in COMPUTE_MODES or memory not in chip.memory_modes:
        return False
    return kernel_allows(chip.xcds, compute, memory, chip.is_apu, chip.is_cdna4)


def test_exactly_what_the_driver_allows_is_legal_everywhere() -> None:
    looked, legal = 0, 0
    for model, place in product(CHIPS, PLACES):
        table = legal_modes(model, place)
        assert len(set(table)) == len(table)
        for compute, memory in product(WORDS, MEMORIES):
            looked += 1
            wanted = is_allowed(model, place, compute, memory)
            legal += wanted
            assert (Mode(compute, memory) in table) == wanted, (model, place, compute, memory)
    assert (looked, legal) == (len(CHIPS) * 3 * 7 * 6, 71)


def test_a_machine_can_become_only_what_is_legal_and_in_its_power() -> None:
    for model, place in product(CHIPS, PLACES):
        for now in legal_modes(model):
            reach = next_modes(model, now, place)
            assert set(reach) <= set(legal_modes(model, place))
            if place not in platforms(model):
                assert reach == ()
                continue
            assert now in reach
            if place == "vf":
                assert reach == (now,)
            elif place == "apu":
                assert {mode.memory for mode in reach} == {now.memory}
            else:
                assert set(reach) == set(legal_modes(model))


def test_no_illegal_mode_has_a_shape_and_every_legal_one_fits_in_the_gpu() -> None:
    for model, compute, memory in product(CHIPS, WORDS, MEMORIES):
        shape = partition_shape(model, compute, memory, memory_mib=196_592)
        assert (shape is not None) == (Mode(compute, memory) in legal_modes(model))
        if shape is not None:
            assert shape.count == partition_count(model, compute)
            assert shape.count * shape.memory_mib <= 196_592
            assert shape.count * shape.xcds == CHIPS[model].xcds
