"""This machine as a node."""

import sys
from pathlib import Path

import pytest

from kaiwo.clusters.local.continue_state import are_virtual
from kaiwo.clusters.local.process_environment import visible_devices
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu
from kaiwo.model.gpus.gpu import vendor_of
from kaiwo.runtime.nodes import local_node
from tests.devices.amd_trees import Box, address, write_box
from tests.devices.fake_inventory import fake_inventory
from tests.devices.fake_nvml import FakeNvml


def test_every_partition_is_a_device_in_the_order_of_rocr(tmp_path: Path) -> None:
    found = discover(str(write_box(tmp_path, Box(gpus=2, compute="CPX", memory="NPS4", lost={(0, 7)}))))
    node = local_node.node_of(found)
    assert node is not None
    assert [gpu.id for gpu in node.gpus] == [
        *(f"{address(0)}-p{index}" for index in range(7)),
        *(f"{address(1)}-p{index}" for index in range(8)),
    ]
    assert {(gpu.model, gpu.memory_mib, gpu.healthy) for gpu in node.gpus} == {("MI300X", 24_576, True)}
    assert visible_devices(node, [f"{address(1)}-p0"]) == {"ROCR_VISIBLE_DEVICES": "7", "HIP_VISIBLE_DEVICES": "0"}
    assert node.cpu_milli > 0
    assert node.memory_mib > 0
    assert not are_virtual([node])
    assert node.labels == {"kubernetes.io/hostname": found.node, "kaiwo.ai/gpu-model": "MI300X"}


def test_a_device_that_cannot_be_read_keeps_its_place_and_is_not_used(tmp_path: Path) -> None:
    """How ROCr counts those behind it is not known: `tests/devices/amd/test_rocr_order.py` has who is refused then."""
    write_box(tmp_path, Box("MI210", 3, has_sysfs=False))
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/2/properties").unlink()
    node = local_node.node_of(discover(str(tmp_path)))
    assert node is not None
    assert [gpu.id for gpu in node.gpus] == ["kfd-2", address(1), address(2)]
    assert [gpu.healthy for gpu in node.gpus] == [False, True, True]
    assert "no such file" in node.gpus[0].reason


def test_ill_gpus_are_not_to_be_used() -> None:
    node = local_node.node_of(fake_inventory("MI300X", 2, ("DPX", "NPS2"), ill={1: "hot"}))
    assert node is not None
    assert [(gpu.healthy, gpu.reason) for gpu in node.gpus] == [(True, ""), (True, ""), (False, "hot"), (False, "hot")]


def test_one_broken_partition_leaves_its_siblings(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1, compute="QPX", memory="NPS4"))
    properties = tmp_path / "sys/class/kfd/kfd/topology/nodes/3/properties"
    properties.write_text(properties.read_text().replace("simd_per_cu 4", "simd_per_cu x"))
    node = local_node.node_of(discover(str(tmp_path)))
    assert node is not None
    assert [gpu.healthy for gpu in node.gpus] == [True, False, True, True]


def test_mig_devices_are_named_by_their_uuid() -> None:
    parts = tuple(Partition(f"0000:1b:00.0-MIG-{name}", index) for index, name in enumerate(("x-1", "y-2")))
    cut = PhysicalGpu("0000:1b:00.0", "nvidia", "A100", compute_mode="MIG", serial="GPU-aa", partitions=parts)
    whole = PhysicalGpu("0000:2b:00.0", "nvidia", "A100", order=1, serial="GPU-bb")
    node = local_node.node_of(Inventory("n", (cut, whole)))
    assert node is not None
    ids = [gpu.id for gpu in node.gpus]
    assert ids == ["0000:2b:00.0-GPU-bb", "0000:1b:00.0-MIG-x-1", "0000:1b:00.0-MIG-y-2"]
    assert visible_devices(node, ids[:2])["CUDA_VISIBLE_DEVICES"] == "GPU-bb,MIG-x-1"


def test_vendors_are_counted_apart() -> None:
    nvidia = [PhysicalGpu(f"0000:{n}b:00.0", "nvidia", "H100", order=n) for n in range(2)]
    amd = [PhysicalGpu(f"0001:{n}b:00.0", "amd", "MI300X", order=n) for n in range(2)]
    node = local_node.node_of(Inventory("n", (nvidia[1], amd[1], nvidia[0], amd[0])))
    assert node is not None
    assert [gpu.id for gpu in node.gpus] == ["0000:0b:00.0", "0000:1b:00.0", "0001:0b:00.0", "0001:1b:00.0"]
    assert visible_devices(node, ["0001:1b:00.0"]) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "-1",
        "ROCR_VISIBLE_DEVICES": "1",
        "HIP_VISIBLE_DEVICES": "0",
    }


def test_who_made_a_gpu_is_told_where_its_model_does_not_say() -> None:
    """On a node with GPUs of two vendors, that is what keeps them apart."""
    gpus = (
        PhysicalGpu("a", "nvidia", "Tesla-T4", memory_mib=16_384),
        PhysicalGpu("b", "nvidia", "H100", memory_mib=81_559),
        PhysicalGpu("c", "amd", "gfx1100", memory_mib=46_064, partitions=(Partition("c-p0", 0, memory_mib=46_064),)),
    )
    told = local_node.devices_of(Inventory("box", gpus))
    assert {gpu.id: (gpu.vendor, vendor_of(gpu)) for gpu in told} == {
        "a": ("nvidia", "nvidia"), "b": ("", "nvidia"), "c-p0": ("amd", "amd"),
    }  # fmt: skip


def test_a_machine_without_gpus_is_no_node(tmp_path: Path) -> None:
    assert local_node.node_of(discover(str(tmp_path))) is None


def test_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(2))
    node = local_node.real_node()
    assert node is not None
    assert [gpu.model for gpu in node.gpus if gpu.model == "H200"] == ["H200", "H200"]
