"""What four real machines say of themselves: the trees that AMD's device plugin is tested with."""

from collections import Counter
from pathlib import Path

import pytest

from kaiwo.devices.amd.discover_gpus import product_name
from kaiwo.devices.discover import discover
from kaiwo.devices.gpu_names import MODELS_BY_PCI_ID, VIRTUAL_FUNCTIONS
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from kaiwo.model.gpus.gpu_models import CHIPS
from kaiwo.runtime.nodes.local_node import devices_of

GIB = 1024


def kinds(gpu: PhysicalGpu) -> Counter[str]:
    return Counter(link.kind for link in gpu.links)


def is_all_well(inventory: Inventory) -> bool:
    return all(
        part.health == "healthy" and not part.reason for gpu in inventory.gpus for part in (gpu, *gpu.partitions)
    )


def test_eight_mi300x_in_cpx_show_63_devices(real_trees: Path) -> None:
    found = discover(str(real_trees / "topo-mi300-cpx"))
    assert is_all_well(found)
    assert " ".join(gpu.pci[5:7] for gpu in found.gpus) == "05 27 47 65 85 a7 c7 e5"
    assert {(gpu.model, gpu.device_id, gpu.target, gpu.compute_mode) for gpu in found.gpus} == {
        ("MI300X", "0x74a1", "gfx942", "CPX")
    }
    assert [len(gpu.partitions) for gpu in found.gpus] == [8] * 7 + [7]  # the last was lost to another driver
    assert any("7 of 8 partitions" in note and "0000:e5:00.0" in note and "missing: 7" in note for note in found.notes)
    for gpu in found.gpus:
        assert (gpu.compute_units, gpu.simds, gpu.xcds, gpu.memory_mib) == (304, 1216, 8, 192 * GIB)
        assert gpu.memory_from == "table"  # the banks were left out of this tree
        assert {(p.compute_units, p.simds, p.xcds, p.memory_mib) for p in gpu.partitions} == {(38, 152, 1, 24 * GIB)}
        assert [part.index for part in gpu.partitions] == list(range(len(gpu.partitions)))
        assert kinds(gpu) == {"xgmi": 7}
        assert {link.weight for link in gpu.links} == {41}
    assert len({gpu.hive for gpu in found.gpus}) == 1
    assert len({gpu.serial for gpu in found.gpus}) == 8
    assert [gpu.numa for gpu in found.gpus] == [0] * 4 + [1] * 4
    renders = [part.render for gpu in found.gpus for part in gpu.partitions]
    assert renders == [f"renderD{number}" for number in range(128, 191)]
    assert [part.order for gpu in found.gpus for part in gpu.partitions] == list(range(63))
    assert len(devices_of(found)) == 63


def test_eight_mi308x_sit_in_two_pci_domains(real_trees: Path) -> None:
    found = discover(str(real_trees / "topology-parsing-mi308"))
    assert is_all_well(found)
    assert found.notes == ()
    assert Counter(gpu.pci[:4] for gpu in found.gpus) == {"0000": 4, "0001": 4}
    assert len({gpu.pci for gpu in found.gpus}) == 8
    assert sum(len(gpu.partitions) for gpu in found.gpus) == 32
    for gpu in found.gpus:
        assert (gpu.model, gpu.device_id, gpu.compute_mode, gpu.xcds) == ("MI308X", "0x74a2", "CPX", 4)
        assert (gpu.compute_units, gpu.simds) == (80, 320)
        assert (gpu.memory_mib, gpu.memory_from) == (196_592, "driver")
        # The last partition of each is 16 MiB smaller than the others.
        assert [part.memory_mib for part in gpu.partitions] == [49_152, 49_152, 49_152, 49_136]
        assert {(part.compute_units, part.simds, part.xcds) for part in gpu.partitions} == {(20, 80, 1)}
        assert kinds(gpu) == {"xgmi": 7}
        assert gpu.compute_modes == ("SPX", "DPX", "CPX")
    assert [gpu.numa for gpu in found.gpus] == [0] * 4 + [1] * 4
    assert [part.render for part in found.gpus[1].partitions] == [f"renderD{number}" for number in range(136, 140)]


@pytest.mark.parametrize("is_unpacked", [False, True])
def test_eight_mi210_are_two_hives_of_four(real_trees: Path, gpu_fixtures: Path, is_unpacked: bool) -> None:
    """In one hive over XGMI, between the two over PCIe."""
    top = gpu_fixtures / "rocm-k8s-device-plugin" if is_unpacked else real_trees
    found = discover(str(top / "topo-mi210-xgmi-pcie"))
    assert is_all_well(found)
    assert " ".join(gpu.pci[5:7] for gpu in found.gpus) == "63 43 03 26 e3 c3 83 a3"
    assert sorted(Counter(gpu.hive for gpu in found.gpus).values()) == [4, 4]
    hive = {gpu.id: gpu.hive for gpu in found.gpus}
    for order, gpu in enumerate(found.gpus):
        assert (gpu.model, gpu.target, gpu.compute_units, gpu.simds) == ("MI210", "gfx90a", 104, 416)
        assert (gpu.memory_mib, gpu.partitions, gpu.order) == (64 * GIB, (), order)
        assert kinds(gpu) == {"xgmi": 3, "pcie": 4}
        for link in gpu.links:
            is_near = hive[link.to] == gpu.hive
            assert (link.kind, link.bandwidth_mb_s) == (("xgmi", 50_000) if is_near else ("pcie", None))
            assert link.weight == 15 if is_near else link.weight in (52, 72)
        assert gpu.numa == (0 if order < 4 else 1)
        assert gpu.compute_modes == gpu.memory_modes == ()


def test_two_vega_at_one_address_stay_two(real_trees: Path) -> None:
    """An old kernel without domains, instruction sets and XCDs; both nodes tell the same PCI address."""
    found = discover(str(real_trees / "topology-parsing"))
    assert is_all_well(found)
    assert len({gpu.id for gpu in found.gpus}) == len({gpu.serial for gpu in found.gpus}) == 2
    assert {gpu.pci for gpu in found.gpus} == {"0000:19:00.0"}
    assert any("two GPUs say they are at 0000:19:00.0" in note for note in found.notes)
    for gpu in found.gpus:
        assert (gpu.model, gpu.device_id, gpu.compute_units) == ("MI25", "0x6860", 64)
        assert (gpu.memory_mib, gpu.memory_from) == (17_163_091_968 >> 20, "driver")
        assert (gpu.hive, gpu.links, gpu.partitions) == ("", (), ())
    assert [gpu.render for gpu in found.gpus] == ["renderD128", "renderD129"]


@pytest.mark.parametrize("place", ["sys/class/kfd/kfd/topology", "class/kfd/kfd/topology", "topology", "."])
def test_a_tree_is_found_wherever_it_lies(real_trees: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / place
    target.mkdir(parents=True, exist_ok=True)
    (target / "nodes").symlink_to(real_trees / "topo-mi210-xgmi-pcie" / "nodes")
    assert len(discover(str(tmp_path)).gpus) == 8


def test_the_folder_of_nodes_itself_will_do(real_trees: Path) -> None:
    assert len(discover(str(real_trees / "topo-mi300-cpx" / "topology" / "nodes")).gpus) == 8


def test_our_table_agrees_with_the_list_of_names(gpu_fixtures: Path) -> None:
    folder = gpu_fixtures / "rocm-k8s-device-plugin"
    for device, models in MODELS_BY_PCI_ID.items():
        model = models[0].name
        if model in CHIPS or model in ("MI210", "MI100", "MI250X", "MI25"):
            name = product_name(str(folder), device, None)
            assert not name or model in name, (hex(device), name)
            if " VF" in name:
                assert device in VIRTUAL_FUNCTIONS
    assert product_name(str(folder), 0x73DF, 0xC1).startswith("AMD Radeon RX 6700 XT")
    assert product_name(str(folder), 0xFFFF, None) == ""
    assert product_name(str(folder / "missing"), 0x74A1, 0) == ""
