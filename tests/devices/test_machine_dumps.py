"""Dumps of other tools: RCCL's topologies of 57 machines, nvidia-smi's reports."""

from collections import Counter
from pathlib import Path

import pytest

from kaiwo.devices.inventory import Inventory
from kaiwo.devices.machine_dumps import read_dump
from kaiwo.model.errors import ConfigError

NVIDIA_SMI = "influxdata-telegraf/plugins/inputs/nvidia_smi/testdata"


@pytest.fixture(scope="module")
def models(gpu_fixtures: Path) -> dict[str, Inventory]:
    folder = gpu_fixtures / "rocm-rccl" / "tools" / "topo_expl" / "models"
    return {path.stem: read_dump(path.read_text(), path.stem) for path in sorted(folder.glob("*.xml"))}


def test_all_57_topologies_are_read(models: dict[str, Inventory]) -> None:
    assert len(models) == 57
    for name, found in models.items():
        assert len(found.gpus) == len({gpu.pci for gpu in found.gpus}) >= 3, name
        assert [gpu.order for gpu in found.gpus] == list(range(len(found.gpus)))
        assert all(gpu.target.startswith("gfx9") and gpu.compute_units for gpu in found.gpus), name
        assert found.nics, name
        known = {gpu.pci for gpu in found.gpus}
        for gpu in found.gpus:
            assert {link.to for link in gpu.links} <= known
            for link in gpu.links:
                back = next(other for other in found.gpus if other.pci == link.to)
                assert gpu.pci in {there.to for there in back.links}


@pytest.mark.parametrize("name", ["topo_8p_940", "topo_8p_940vm"])
def test_eight_mi300x_are_a_full_mesh_with_a_nic_each(models: dict[str, Inventory], name: str) -> None:
    found = models[name]
    assert {(gpu.model, gpu.compute_units, gpu.target) for gpu in found.gpus} == {("MI300X", 304, "gfx942")}
    assert {gpu.platform for gpu in found.gpus} == ({"vf"} if name.endswith("vm") else {""})
    for gpu in found.gpus:
        assert Counter((link.kind, link.count) for link in gpu.links) == {("xgmi", 1): 7}
    assert [nic.speed_mbit_s for nic in found.nics] == [400_000] * 8
    assert all(nic.name.startswith("mlx5") for nic in found.nics)
    if name == "topo_8p_940":  # a PCIe switch for each pair of GPU and NIC
        assert sorted(nic.near for nic in found.nics) == sorted((gpu.pci,) for gpu in found.gpus)
        assert {gpu.numa for gpu in found.gpus} == {0, 1}


def test_sixteen_dies_of_mi250_are_four_links_apart_in_a_package(models: dict[str, Inventory]) -> None:
    found = models["topo_16p1h"]
    assert len(found.gpus) == 16
    assert {(gpu.model, gpu.compute_units, gpu.memory_mib) for gpu in found.gpus} == {("MI250", 104, 65_536)}
    assert len(found.nics) == 8
    counts = Counter(link.count for gpu in found.gpus for link in gpu.links)
    assert counts[4] == 16  # each die and its twin
    assert set(counts) <= {1, 2, 4}


@pytest.mark.parametrize("name", ["topo_8p_90a", "topo_8p_90a_1"])
def test_eight_dies_of_gfx90a_have_104_units(models: dict[str, Inventory], name: str) -> None:
    assert {(gpu.target, gpu.compute_units) for gpu in models[name].gpus} == {("gfx90a", 104)}
    assert len(models[name].gpus) == 8


def test_older_machines_say_what_they_are(models: dict[str, Inventory]) -> None:
    assert {gpu.target for gpu in models["topo_8p_rome_n2"].gpus} == {"gfx906"}
    assert {gpu.target for gpu in models["topo_4p3l_n4"].gpus} == {"gfx908"}
    assert {gpu.model for gpu in models["topo_8p_rome_4n_1"].gpus} == {"MI100"}
    apu = models["topo_4p_940"].gpus[0]
    assert (apu.model, apu.compute_units, apu.platform) == ("MI300A", 228, "apu")
    assert [len(gpu.links) for gpu in models["topo_8p_pcie"].gpus] == [0] * 8


@pytest.mark.parametrize(
    ("file", "model", "memory_mib", "watt", "limit"),
    [("a10g", "NVIDIA-A10G", 23_028, 26, 300), ("tesla-t4", "Tesla-T4", 15_360, 27, 70)],
)
def test_nvidia_smi_of_whole_gpus(
    gpu_fixtures: Path, file: str, model: str, memory_mib: int, watt: int, limit: int
) -> None:
    gpu = read_dump((gpu_fixtures / NVIDIA_SMI / f"{file}.xml").read_text()).gpus[0]
    assert (gpu.pci, gpu.model, gpu.memory_mib, gpu.partitions) == ("0000:00:1e.0", model, memory_mib, ())
    assert (gpu.telemetry.power_w, gpu.telemetry.power_limit_w, gpu.telemetry.utilisation_percent) == (watt, limit, 0)
    assert (gpu.errors.corrected, gpu.errors.uncorrected, gpu.health) == (0, 0, "healthy")
    assert gpu.serial.startswith("GPU-")


def test_nvidia_smi_of_an_a100_cut_by_mig(gpu_fixtures: Path) -> None:
    gpu = read_dump((gpu_fixtures / NVIDIA_SMI / "a100-sxm4-v12.xml").read_text()).gpus[0]
    assert (gpu.model, gpu.compute_mode, gpu.memory_mib, gpu.order) == ("A100", "MIG", 81_920, None)
    assert [(part.index, part.memory_mib, part.compute_units) for part in gpu.partitions][:2] == [
        (0, 19_968, 14),
        (1, 19_968, 14),
    ]
    assert len(gpu.partitions) == 4
    assert (gpu.telemetry.utilisation_percent, gpu.telemetry.power_w) == (None, 67)  # N/A under MIG


@pytest.mark.parametrize("text", ["", "no xml", "<a/>", "<system", "<!DOCTYPE x [<!ENTITY a 'b'>]><html/>"])
def test_other_texts_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match="NCCL_TOPO_DUMP_FILE"):
        read_dump(text)


def test_a_dump_with_holes_is_survived() -> None:
    text = """<system><cpu><pci><gpu/></pci><gpu/><nic><net/></nic><pci busid='0000:05:00.0' device='junk'>
    <gpu dev='x' sm='N/A' gcn='?'><xgmi/><xgmi target='a' count='-1' tclass='0x120000'/></gpu></pci></cpu></system>"""
    found = read_dump(text)
    assert [gpu.model for gpu in found.gpus] == ["AMD", "AMD"]
    assert read_dump("<system/>") == Inventory("machine")
    assert read_dump("<nvidia_smi_log><gpu/></nvidia_smi_log>").gpus[0].health == "degraded"
