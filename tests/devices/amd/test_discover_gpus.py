"""Machines in every mode, as the driver would show them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kaiwo.devices.amd.discover_gpus import NOT_LISTED
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Errors, Inventory, Telemetry
from kaiwo.devices.sharing.grants import visible_variables
from kaiwo.devices.sharing.share_types import devices_by_id
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.model.gpus.partition_modes import legal_modes, partition_count, partition_shape
from tests.devices.amd_trees import KFD, MEMORY_GIB, PCI, Box, address, write_box, write_files, write_node, write_pci

EVERY_MODE = [(model, *mode) for model in CHIPS for mode in legal_modes(model)]


@pytest.mark.parametrize("has_sysfs", [True, False], ids=["sysfs", "kfd-alone"])
@pytest.mark.parametrize(("model", "compute", "memory"), EVERY_MODE)
def test_every_mode_of_every_model_is_read_back(
    tmp_path: Path, model: str, compute: str, memory: str, has_sysfs: bool
) -> None:
    found = discover(str(write_box(tmp_path, Box(model, 2, compute, memory, has_sysfs=has_sysfs))))
    shape = partition_shape(model, compute, memory)
    assert shape is not None
    assert [gpu.pci for gpu in found.gpus] == [address(0), address(1)]
    for gpu in found.gpus:
        assert (gpu.health, gpu.reason) == ("healthy", "")
        assert (gpu.model, gpu.compute_mode) == (model, compute)
        assert gpu.memory_mode == (memory if has_sysfs else "")
        seen_mib = MEMORY_GIB[model] * 1024 if has_sysfs else shape.memory_mib * shape.count
        assert (gpu.memory_mib, gpu.memory_from) == (seen_mib, "driver")
        assert (gpu.compute_units, gpu.xcds) == (CHIPS[model].compute_units, CHIPS[model].xcds)
        assert gpu.platform == ("apu" if model == "MI300A" else "bare-metal")
        assert len(gpu.partitions) == (shape.count if shape.count > 1 else 0)
        for part in gpu.partitions:
            assert (part.compute_units, part.xcds, part.memory_mib) == (
                shape.compute_units,
                shape.xcds,
                shape.memory_mib,
            )
    assert found.notes == ()


@pytest.mark.parametrize("spelling", ["amdgpu_xcp_{}", "amdgpu_xcp.{}"])
def test_both_spellings_of_partition_devices_are_joined_to_their_gpu(tmp_path: Path, spelling: str) -> None:
    found = discover(str(write_box(tmp_path, Box(gpus=2, compute="CPX", xcp=spelling))))
    for number, gpu in enumerate(found.gpus):
        assert [part.device for part in gpu.partitions] == [
            "",  # the first partition is the PCI device itself
            *(spelling.format(7 * number + index) for index in range(7)),
        ]
        assert [part.card for part in gpu.partitions[1:]] == [f"card{8 * number + 1 + index}" for index in range(1, 8)]
        assert gpu.card == f"card{8 * number + 1}"
        assert [part.render for part in gpu.partitions] == [f"renderD{128 + 8 * number + index}" for index in range(8)]


def test_what_sysfs_says_is_told(tmp_path: Path) -> None:
    gpu = discover(str(write_box(tmp_path, Box(gpus=1)))).gpus[0]
    assert gpu.product == "AMD Instinct MI300X OAM"
    assert gpu.telemetry == Telemetry(37, 297, 5, 41, 33, 124, 750)
    assert gpu.errors == Errors(corrected=3, uncorrected=0, bad_pages=1)
    assert (gpu.compute_modes, gpu.memory_modes) == (("SPX", "DPX", "QPX", "CPX"), ("NPS1", "NPS4"))
    assert gpu.numa == 0
    assert discover(str(tmp_path), has_telemetry=False).gpus[0].telemetry == Telemetry()


def test_every_sensor_may_be_missing(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    folder = tmp_path / PCI / address(0)
    for name in [path for path in sorted(folder.rglob("*")) if path.is_file()]:
        text = name.read_text()
        for instead in (None, "", "N/A", "-1", "99999999999999999999999999"):
            name.unlink()
            if instead is not None:
                name.write_text(instead)
            gpu = discover(str(tmp_path)).gpus[0]
            assert (gpu.model, gpu.compute_units, gpu.pci) == ("MI300X", 304, address(0)), (name, instead)
            assert gpu.memory_mib in (196_608, 0) or instead, (name, instead)
            name.write_text(text)


def test_uncorrectable_errors_fail_a_gpu(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2))
    write_files(tmp_path / PCI / address(1), {"ras/sdma_err_count": "ue: 4\nce: 0"})
    well, ill = discover(str(tmp_path)).gpus
    assert (well.health, ill.health) == ("healthy", "failed")
    assert ill.reason == "the hardware counted 4 uncorrectable errors"


def test_missing_partitions_are_noted_wherever_they_are(tmp_path: Path) -> None:
    lost = {(0, 0), (1, 3), (1, 4)}
    found = discover(str(write_box(tmp_path, Box(gpus=2, compute="CPX", lost=lost))))
    assert [gpu.pci for gpu in found.gpus] == [address(0), address(1)]
    assert [[part.index for part in gpu.partitions] for gpu in found.gpus] == [[*range(1, 8)], [0, 1, 2, 5, 6, 7]]
    assert [gpu.compute_units for gpu in found.gpus] == [304, 304]
    assert [gpu.memory_mib for gpu in found.gpus] == [196_608, 196_608]
    assert sorted(note.partition("missing: ")[2] for note in found.notes) == ["0", "3, 4"]


def test_one_partition_that_is_left_is_still_a_partition(tmp_path: Path) -> None:
    box = Box(gpus=1, compute="DPX", lost={(0, 0)}, has_sysfs=False)
    gpu = discover(str(write_box(tmp_path, box))).gpus[0]
    assert (gpu.pci, gpu.compute_mode, gpu.compute_units, gpu.memory_mib) == (address(0), "DPX", 304, 196_608)
    assert [(part.index, part.compute_units) for part in gpu.partitions] == [(1, 152)]


def test_partitions_that_all_tell_one_address_are_one_gpu(tmp_path: Path) -> None:
    """As the first kernels with partitions did: the chip's own number keeps them together."""
    write_box(tmp_path, Box(gpus=2, compute="CPX", has_sysfs=False))
    for properties in (tmp_path / KFD).glob("*/properties"):
        lines = [line.split() for line in properties.read_text().splitlines()]
        kept = {name: int(value) & ~7 if name == "location_id" else value for name, value in lines}
        properties.write_text("".join(f"{name} {value}\n" for name, value in kept.items()))
    found = discover(str(tmp_path))
    assert [gpu.pci for gpu in found.gpus] == [address(0), address(1)]
    assert [[part.index for part in gpu.partitions] for gpu in found.gpus] == [[*range(8)], [*range(8)]]


def rewrite(root: Path, change: Callable[[int, dict[str, int]], dict[str, int]]) -> None:
    """The lines of every GPU's node, made others."""
    for properties in (root / KFD).glob("*/properties"):
        facts = {name: int(value) for name, value in map(str.split, properties.read_text().splitlines())}
        if facts["simd_count"]:
            facts |= change(int(properties.parent.name), facts)
            properties.write_text("".join(f"{name} {value}\n" for name, value in facts.items()))


@pytest.mark.parametrize("has_sysfs", [True, False], ids=["sysfs", "kfd-alone"])
@pytest.mark.parametrize(("model", "compute"), [("MI300X", "CPX"), ("MI300X", "DPX"), ("MI300A", "TPX")])
def test_partitions_with_numbers_of_their_own_are_one_gpu(
    tmp_path: Path, model: str, compute: str, has_sysfs: bool
) -> None:
    """Newer kernels tell the number of a partition's first XCD, which nobody else has: no chip is counted twice."""
    box = write_box(tmp_path, Box(model, 2, compute, has_sysfs=has_sysfs, lost={(1, 1)}))
    rewrite(box, lambda node, _: {"unique_id": 0xABC0 + node})
    found = discover(str(box)).gpus
    count = partition_count(model, compute)
    assert [(gpu.pci, gpu.compute_units) for gpu in found] == [(address(n), CHIPS[model].compute_units) for n in (0, 1)]
    assert [len(gpu.partitions) for gpu in found] == [count, count - 1]
    assert [part.uuid for part in found[0].partitions] == [f"GPU-{0xABC2 + n:016X}" for n in range(count)]
    assert found[0].serial == (f"0x{16404946649897475633:016x}" if has_sysfs else "")
    devices = devices_by_id(Inventory("box", found))
    mine = [devices[f"{address(0)}-p1"], devices[f"{address(1)}-p0"]]
    told = visible_variables(mine, {"amd"})["ROCR_VISIBLE_DEVICES"]
    assert told == f"GPU-{0xABC3:016X},GPU-{0xABC2 + count:016X}"  # a number would move when another GPU is cut


def test_a_part_with_an_unreadable_node_joins_those_with_numbers_of_their_own(tmp_path: Path) -> None:
    box = write_box(tmp_path, Box(gpus=2, compute="CPX"))
    rewrite(box, lambda node, _: {"unique_id": 0xABC0 + node})
    (box / KFD / "5" / "properties").write_text("")
    found = discover(str(box)).gpus
    assert [(gpu.pci, len(gpu.partitions)) for gpu in found] == [(address(0), 8), (address(1), 8)]
    assert [part.uuid for part in found[0].partitions][3] == ""


def test_a_partition_may_tell_its_number_in_the_highest_bits(tmp_path: Path) -> None:
    box = write_box(tmp_path, Box(gpus=2, compute="CPX", has_sysfs=False, lost={(0, 2), (0, 3)}))
    rewrite(box, lambda _, facts: {"location_id": facts["location_id"] & ~7 | (facts["location_id"] & 7) << 28})
    found = discover(str(box)).gpus
    assert [gpu.pci for gpu in found] == [address(0), address(1)]
    assert [[part.index for part in gpu.partitions] for gpu in found] == [[0, 1, 4, 5, 6, 7], [*range(8)]]


def test_a_mode_that_the_nodes_deny_degrades_the_gpu(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1, compute="CPX"))
    write_files(tmp_path / PCI / address(0), {"current_compute_partition": "SPX"})
    gpu = discover(str(tmp_path)).gpus[0]
    assert len(gpu.partitions) == 8  # what work can use is what the kernel lists
    assert (gpu.health, gpu.reason) == ("degraded", "the driver says SPX and shows 8 partitions")


def test_a_driver_without_the_compute_topology_says_so(tmp_path: Path) -> None:
    found = discover(str(write_box(tmp_path, Box(gpus=2, compute="CPX", memory="NPS4", has_kfd=False))))
    for gpu in found.gpus:
        assert (gpu.model, gpu.memory_mib, gpu.compute_mode) == ("MI300X", 196_608, "CPX")
        assert (gpu.health, gpu.reason) == ("degraded", NOT_LISTED)
        assert [part.index for part in gpu.partitions] == list(range(8))
        assert [part.compute_units for part in gpu.partitions] == [38] * 8


@pytest.mark.parametrize(("compute", "count"), [("SPX", 0), ("QPX", 4), ("CPX", 8), ("", 8)])
def test_partition_devices_that_wait_for_another_mode_are_no_partitions(
    tmp_path: Path, compute: str, count: int
) -> None:
    """The driver makes seven beside every GPU when it starts, whatever the mode is."""
    write_box(tmp_path, Box(gpus=2, compute="CPX", has_kfd=False))
    for number in (0, 1):
        write_files(tmp_path / PCI / address(number), {"current_compute_partition": compute})
    assert [len(gpu.partitions) for gpu in discover(str(tmp_path)).gpus] == [count, count]


def test_a_copy_of_sysfs_without_its_links_will_do(tmp_path: Path) -> None:
    """Some copies hold /sys/devices alone."""
    write_box(tmp_path / "a", Box(gpus=1))
    devices = tmp_path / "b" / "sys" / "devices"
    (devices / "virtual" / "kfd" / "kfd" / "topology").mkdir(parents=True)
    (tmp_path / "a" / KFD).rename(devices / "virtual" / "kfd" / "kfd" / "topology" / "nodes")
    (devices / "pci0000:00" / "0000:00:01.1").mkdir(parents=True)
    (tmp_path / "a" / PCI / address(0)).rename(devices / "pci0000:00" / "0000:00:01.1" / address(0))
    gpu = discover(str(tmp_path / "b")).gpus[0]
    assert (gpu.product, gpu.telemetry.power_w, gpu.health) == ("AMD Instinct MI300X OAM", 124, "healthy")


def test_a_virtual_function_is_whole_as_its_host_made_it(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1, has_sysfs=False))
    properties = tmp_path / KFD / "2" / "properties"
    text = properties.read_text().replace(f"device_id {0x74A1}", f"device_id {0x74B5}")
    properties.write_text(text.replace("num_xcc 8", "num_xcc 1").replace("simd_count 1216", "simd_count 152"))
    gpu = discover(str(tmp_path)).gpus[0]
    assert (gpu.platform, gpu.model, gpu.compute_mode, gpu.xcds, gpu.compute_units) == ("vf", "MI300X", "SPX", 1, 38)
    assert (gpu.partitions, gpu.compute_modes) == ((), ("SPX",))


def test_virtual_functions_of_one_slot_are_gpus_of_their_own(tmp_path: Path) -> None:
    """Their numbers are where partitions have theirs; but each is a PCI device, which a partition is not."""
    for n in range(8):
        place = address(0)[:-1] + str(n)
        vf = Box(gpus=1, compute="CPX", memory="NPS4")
        write_node(tmp_path / KFD / str(2 + n), vf, 0, n)
        write_pci(tmp_path / PCI / place, vf, 0)
        (tmp_path / PCI / place / "drm" / "renderD128").rename(tmp_path / PCI / place / "drm" / f"renderD{128 + n}")
        write_files(tmp_path / PCI / place, {"device": "0x74b5", "mem_info_vram_total": 24_560 << 20})
        properties = tmp_path / KFD / str(2 + n) / "properties"
        text = properties.read_text().replace(f"device_id {0x74A1}", f"device_id {0x74B5}")
        properties.write_text(text.replace("unique_id 16404946649897475633", "unique_id 0"))
        write_files(
            tmp_path / KFD / str(2 + n), {"mem_banks/0/properties": f"heap_type 1\nsize_in_bytes {24_560 << 20}"}
        )
    found = discover(str(tmp_path)).gpus
    assert [gpu.pci for gpu in found] == [address(0)[:-1] + str(n) for n in range(8)]
    assert {(gpu.platform, gpu.memory_mib, gpu.compute_units, gpu.health) for gpu in found} == {
        ("vf", 24_560, 38, "healthy")
    }
    assert [gpu.partitions for gpu in found] == [()] * 8


@pytest.mark.parametrize(("target", "mib"), [(110501, 98_304), (110000, 512)])
def test_graphics_inside_a_processor_have_what_the_driver_lets_them_use(tmp_path: Path, target: int, mib: int) -> None:
    """The memory that is theirs alone is small. A card has no more than its own, whatever another file says."""
    write_box(tmp_path, Box("MI210", 1))
    properties = tmp_path / KFD / "2" / "properties"
    text = properties.read_text().replace(f"device_id {0x740F}", f"device_id {0x1586}")
    properties.write_text(text.replace("gfx_target_version 90010", f"gfx_target_version {target}"))
    write_files(tmp_path / KFD / "2", {"mem_banks/0/properties": f"heap_type 1\nsize_in_bytes {98_304 << 20}"})
    facts = {"device": "0x1586", "product_name": "", "mem_info_vram_total": 512 << 20}
    write_files(tmp_path / PCI / address(0), facts)
    (gpu,) = discover(str(tmp_path)).gpus
    assert (gpu.memory_mib, gpu.health, gpu.platform) == (mib, "healthy", "apu" if target == 110501 else "")


def test_a_desktop_card_keeps_the_name_its_driver_gives_it(tmp_path: Path) -> None:
    write_box(tmp_path, Box("MI210", 1, has_sysfs=False))
    properties = tmp_path / KFD / "2" / "properties"
    text = properties.read_text().replace(f"device_id {0x740F}", f"device_id {0x73DF}")
    properties.write_text(text.replace("gfx_target_version 90010", "gfx_target_version 100301"))
    assert discover(str(tmp_path)).gpus[0].model == "gfx1031"
    names = tmp_path / "usr" / "share" / "libdrm" / "amdgpu.ids"
    names.parent.mkdir(parents=True)
    names.write_text("# a comment\n1.0.0\n73DF,\tC1,\tAMD Radeon RX 6700 XT\n")
    assert discover(str(tmp_path)).gpus[0].model == "Radeon-RX-6700-XT"
