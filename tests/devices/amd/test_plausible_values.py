"""A number that cannot be true is not believed: the device is degraded, and what another source says is taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import PhysicalGpu
from tests.devices.amd_trees import KFD, PCI, Box, address, write_box

VRAM = f"{PCI}/{address(1)}/mem_info_vram_total"
BANK = f"{KFD}/3/mem_banks/0/properties"
WHOLE_MIB = 196_608


def damaged(root: Path, box: Box, place: str, change: Callable[[str], str]) -> PhysicalGpu:
    """The second of two GPUs, one file of which was changed; the first must be as ever."""
    write_box(root, box)
    path = root / place
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before
    first, second = discover(str(root)).gpus
    assert (first.health, first.reason, first.memory_mib) == (
        "healthy",
        "",
        WHOLE_MIB if box.model != "MI210" else 65_536,
    )
    return second


@pytest.mark.parametrize("compute", ["SPX", "CPX"])
@pytest.mark.parametrize("text", ["-1\n", "20582498", "20615843\n", "20971520\n", "99999999999999999\n", "", "N/A\n"])
def test_memory_that_sysfs_cannot_mean_is_taken_from_the_topology(tmp_path: Path, text: str, compute: str) -> None:
    gpu = damaged(tmp_path, Box(compute=compute), VRAM, lambda _: text)
    assert (gpu.memory_mib, gpu.memory_from, gpu.health) == (WHOLE_MIB, "driver", "degraded")
    assert "mem_info_vram_total" in gpu.reason
    assert {part.memory_mib for part in gpu.partitions} <= {WHOLE_MIB // 8}


@pytest.mark.parametrize("has_sysfs", [True, False])
@pytest.mark.parametrize("size", ["20582498", "20971520\n", "-5\n", "99999999999999999\n", ""])
def test_memory_that_a_bank_cannot_mean_is_taken_from_elsewhere(tmp_path: Path, size: str, has_sysfs: bool) -> None:
    bank = f"heap_type 1\nsize_in_bytes {size}" if size else "heap_type 1\n"
    gpu = damaged(tmp_path, Box(has_sysfs=has_sysfs), BANK, lambda _: bank)
    assert (gpu.memory_mib, gpu.memory_from) == (WHOLE_MIB, "driver" if has_sysfs else "table")
    assert gpu.health == "degraded"
    assert "mem_banks" in gpu.reason


def test_memory_of_an_unlisted_gpu_is_doubted_too(tmp_path: Path) -> None:
    write_box(tmp_path, Box(has_kfd=False))
    (tmp_path / VRAM).write_text("20971520\n")
    first, second = discover(str(tmp_path)).gpus
    assert (first.memory_mib, second.memory_mib) == (WHOLE_MIB, 0)
    assert "mem_info_vram_total" in second.reason


def test_a_partition_that_lost_a_digit_of_its_units_is_degraded(tmp_path: Path) -> None:
    cut = lambda text: text.replace("simd_count 152\n", "simd_count 15\n")  # noqa: E731
    gpu = damaged(tmp_path, Box(compute="CPX"), f"{KFD}/12/properties", cut)
    assert [part.health for part in gpu.partitions].count("degraded") == 1
    assert "simd_count 15" in gpu.partitions[2].reason
    assert (gpu.health, gpu.compute_units) == ("degraded", 304)


@pytest.mark.parametrize(("model", "told"), [("MI300X", 1216), ("MI210", 416)])
@pytest.mark.parametrize("wrong", [41, 1 << 40])
def test_a_whole_gpu_is_compared_with_its_table_and_its_like(tmp_path: Path, model: str, told: int, wrong: int) -> None:
    cut = lambda text: text.replace(f"simd_count {told}\n", f"simd_count {wrong}\n")  # noqa: E731
    gpu = damaged(tmp_path, Box(model, has_sysfs=False), f"{KFD}/3/properties", cut)
    assert (gpu.health, gpu.compute_units) == ("degraded", 0)
    assert "simd_count" in gpu.reason


@pytest.mark.parametrize(("compute", "memory"), [("SPX", "NPS4"), ("DPX", "NPS4"), ("SPX", "NPS2")])
def test_a_mode_that_the_chip_cannot_be_in_is_named(tmp_path: Path, compute: str, memory: str) -> None:
    write_box(tmp_path, Box(gpus=1, compute=compute, memory=memory))
    (gpu,) = discover(str(tmp_path)).gpus
    assert gpu.health == "degraded"
    assert gpu.reason == f"it reports {compute} with {memory}, which an MI300X does not support"
