"""This machine as a node, from the files and libraries that describe real GPUs."""

import sys
import types
from pathlib import Path

import pytest

from kaiwo.clusters.local import machine
from kaiwo.clusters.local.environment import visible_devices
from kaiwo.clusters.local.seed import are_virtual
from kaiwo.model.gpu import Gpu
from kaiwo.model.node import Node

GIB = 1 << 30


def write_node(folder: Path, simds: int, gfx: int = 0, bytes_: int = 0) -> None:
    (folder / "mem_banks" / "0").mkdir(parents=True)
    (folder / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\ngfx_target_version {gfx}\n")
    (folder / "mem_banks" / "0" / "properties").write_text(f"heap_type 1\nsize_in_bytes {bytes_}\n")


@pytest.fixture
def no_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.mark.usefixtures("no_nvidia")
def test_amd_gpus_come_from_the_kernels_topology(tmp_path: Path) -> None:
    write_node(tmp_path / "0", simds=0)
    for index in (10, 2, 1):
        write_node(tmp_path / str(index), 1216, 90402, 192 * GIB)
    node = machine.real_node(tmp_path)
    assert node is not None
    assert [(gpu.id, gpu.model, gpu.memory_mib) for gpu in node.gpus] == [
        (f"gpu-{index}", "MI300X", 192 * 1024) for index in range(3)
    ]
    assert node.cpu_milli > 0
    assert node.memory_mib > 0
    assert not are_virtual([node])


@pytest.mark.parametrize(
    ("gfx", "gib", "model"),
    [
        (90402, 256, "MI325X"),
        (90402, 128, "MI300A"),
        (90010, 64, "MI210"),
        (90500, 288, "MI350X"),
        (110003, 24, "gfx1103"),
    ],
)
def test_the_model_follows_from_the_chip_and_its_memory(gfx: int, gib: int, model: str) -> None:
    assert machine.amd_model(gfx, gib * 1024) == model


@pytest.mark.usefixtures("no_nvidia")
def test_a_machine_without_gpus_is_no_node(tmp_path: Path) -> None:
    assert machine.real_node(tmp_path / "missing") is None


def test_nvidia_gpus_come_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: ("NVIDIA H100 80GB HBM3", b"NVIDIA GeForce RTX 4090")[handle],
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(total=80 * GIB),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert [gpu.model for gpu in machine.nvidia_gpus()] == ["H100", "NVIDIA-GeForce-RTX-4090"]


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_silent_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail() -> None:
        raise OSError

    calls = {"nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: 0, broken: fail}
    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(NVMLError=OSError, **calls))
    assert machine.nvidia_gpus() == ()


def node(*models: str) -> Node:
    return Node("n", gpus=tuple(Gpu(f"gpu-{index}", model, 1) for index, model in enumerate(models)))


def test_devices_are_shown_by_the_vendors_variables() -> None:
    assert visible_devices(node(*["MI300X"] * 8), ["gpu-2", "gpu-5"]) == {
        "ROCR_VISIBLE_DEVICES": "2,5",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert visible_devices(node("H100", "H100"), ["gpu-1"])["CUDA_VISIBLE_DEVICES"] == "1"
    assert visible_devices(node("NVIDIA-GeForce-RTX-4090"), ["gpu-0"])["CUDA_VISIBLE_DEVICES"] == "0"
    assert visible_devices(node("gfx1100"), ["gpu-0"])["ROCR_VISIBLE_DEVICES"] == "0"


def test_work_without_devices_sees_none() -> None:
    assert visible_devices(node("H100"), [])["CUDA_VISIBLE_DEVICES"] == "-1"
    assert visible_devices(node("MI300X"), [])["HIP_VISIBLE_DEVICES"] == "-1"
    assert visible_devices(node(), []) == {}
