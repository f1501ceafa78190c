"""Every partition mode of every model, against what AMD's driver and data sheets say."""

from itertools import product

import pytest

from kaiwo.model.gpus.gpu_models import CHIPS, GPU_MODELS
from kaiwo.model.gpus.partition_modes import (
    COMPUTE_MODES,
    MEMORY_MODES,
    Mode,
    io_dies,
    legal_modes,
    mode_with_partitions,
    next_modes,
    partition_count,
    partition_shape,
    platforms,
)
from tests.gpus.shared_dies import neighbours

# Written out by hand: what may stand together, and nothing else may.
CDNA3 = "SPX+NPS1 DPX+NPS1 DPX+NPS2 QPX+NPS1 QPX+NPS4 CPX+NPS1 CPX+NPS4"
CDNA4 = "SPX+NPS1 DPX+NPS1 DPX+NPS2 QPX+NPS1 QPX+NPS2 CPX+NPS1 CPX+NPS2"
LEGAL = {
    "MI300X": CDNA3,
    "MI325X": CDNA3,
    "MI308X": "SPX+NPS1 DPX+NPS1 DPX+NPS2 CPX+NPS1 CPX+NPS4",
    "MI300A": "SPX+NPS1 TPX+NPS1 TPX+NPS4 CPX+NPS1 CPX+NPS4",
    "MI350X": CDNA4,
    "MI355X": CDNA4,
    "MI210": "",
    "MI250X": "",
    "H100": "",
    "no such model": "",
}
# Count, CUs and GiB of each.
SHAPES = {
    ("MI300X", "SPX"): (1, 304, 192), ("MI300X", "DPX"): (2, 152, 96),
    ("MI300X", "QPX"): (4, 76, 48), ("MI300X", "CPX"): (8, 38, 24),
    ("MI325X", "SPX"): (1, 304, 256), ("MI325X", "CPX"): (8, 38, 32),
    ("MI350X", "SPX"): (1, 256, 288), ("MI350X", "DPX"): (2, 128, 144), ("MI350X", "CPX"): (8, 32, 36),
    ("MI355X", "QPX"): (4, 64, 72),
    ("MI308X", "SPX"): (1, 80, 192), ("MI308X", "DPX"): (2, 40, 96), ("MI308X", "CPX"): (4, 20, 48),
    ("MI300A", "SPX"): (1, 228, 128), ("MI300A", "TPX"): (3, 76, 128 / 3), ("MI300A", "CPX"): (6, 38, 128 / 6),
}  # fmt: skip


@pytest.mark.parametrize("model", LEGAL)
def test_exactly_the_legal_modes_are_legal(model: str) -> None:
    wanted = set(LEGAL[model].split())
    assert {"+".join(mode) for mode in legal_modes(model)} == wanted
    for compute, memory in product((*COMPUTE_MODES, "", "XPX"), (*MEMORY_MODES, "", "NPS3")):
        shape = partition_shape(model, compute, memory)
        assert (shape is not None) == (f"{compute}+{memory}" in wanted), (compute, memory)


@pytest.mark.parametrize(("model", "compute"), SHAPES)
def test_a_partition_has_what_the_data_sheet_says(model: str, compute: str) -> None:
    count, units, gib = SHAPES[model, compute]
    for memory in (mode.memory for mode in legal_modes(model) if mode.compute == compute):
        shape = partition_shape(model, compute, memory)
        assert shape is not None
        assert (shape.count, shape.compute_units, shape.memory_mib) == (count, units, int(gib * 1024))


@pytest.mark.parametrize("model", CHIPS)
def test_the_parts_make_up_the_whole(model: str) -> None:
    for compute, memory in legal_modes(model):
        shape = partition_shape(model, compute, memory)
        assert shape is not None
        assert shape.count * shape.xcds == CHIPS[model].xcds
        assert shape.count * shape.compute_units == CHIPS[model].compute_units
        lost_mib = GPU_MODELS[model].memory_mib - shape.count * shape.memory_mib
        assert 0 <= lost_mib < shape.count
        assert mode_with_partitions(model, shape.count) == compute
        assert shape.count == partition_count(model, compute)


def test_the_driver_may_say_that_there_is_a_little_less_memory() -> None:
    shape = partition_shape("MI300X", "CPX", "NPS4", memory_mib=196_592)
    assert shape is not None
    assert shape.memory_mib == 24_574


def test_where_a_gpu_runs_decides_what_it_can_become() -> None:
    everything = legal_modes("MI300X")
    assert platforms("MI300X") == ("bare-metal", "vf")
    assert next_modes("MI300X", Mode("CPX", "NPS4"), "bare-metal") == everything
    assert next_modes("MI300X", Mode("CPX", "NPS4"), "vf") == (Mode("CPX", "NPS4"),)  # the host decides
    assert platforms("MI300A") == ("apu",)
    assert next_modes("MI300A", Mode("SPX", "NPS1"), "apu") == tuple(
        Mode(compute, "NPS1") for compute in ("SPX", "TPX", "CPX")
    )  # the memory mode is the firmware's
    assert next_modes("MI300A", Mode("TPX", "NPS4")) == (Mode("TPX", "NPS4"), Mode("CPX", "NPS4"))
    assert legal_modes("MI300X", "apu") == ()
    assert legal_modes("MI300A", "vf") == ()
    assert next_modes("MI210", Mode("SPX", "NPS1"), "bare-metal") == ()


def test_partitions_2k_and_2k_plus_1_share_an_io_die() -> None:
    assert [neighbours("MI300X", "CPX", index) for index in range(8)] == [
        (1,),
        (0,),
        (3,),
        (2,),
        (5,),
        (4,),
        (7,),
        (6,),
    ]
    assert [neighbours("MI300A", "CPX", index) for index in range(6)] == [(1,), (0,), (3,), (2,), (5,), (4,)]
    assert neighbours("MI350X", "CPX", 5) == (4, 6, 7)  # two large IO dies
    assert neighbours("MI350X", "QPX", 0) == (1,)
    assert neighbours("MI300X", "QPX", 0) == ()
    assert io_dies("MI300X", "DPX", 1) == (2, 3)
    assert io_dies("MI300X", "SPX", 0) == (0, 1, 2, 3)
    assert io_dies("MI300X", "CPX", 8) == io_dies("MI210", "SPX", 1) == neighbours("MI210", "SPX", 0) == ()


@pytest.mark.parametrize("model", CHIPS)
def test_sharing_a_die_is_mutual(model: str) -> None:
    for compute in {mode.compute for mode in legal_modes(model)}:
        count = partition_count(model, compute)
        for index in range(count):
            for other in neighbours(model, compute, index):
                assert index in neighbours(model, compute, other)
        dies = [die for index in range(count) for die in io_dies(model, compute, index)]
        assert set(dies) == set(range(CHIPS[model].io_dies))


def test_what_is_not_partitioned_is_one() -> None:
    assert partition_count("MI210", "SPX") == partition_count("MI300X", "TPX") == partition_count("H100", "") == 1
    assert mode_with_partitions("MI300X", 3) == mode_with_partitions("MI210", 1) == ""
