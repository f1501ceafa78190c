"""Which devices a process sees."""

from kaiwo.clusters.local.process_environment import rank_variables, visible_devices
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.workload import Pod


def node(*models: str) -> Node:
    return Node("n", gpus=tuple(Gpu(f"gpu-{index}", model, 1) for index, model in enumerate(models)))


def test_devices_are_shown_by_the_vendors_variables() -> None:
    assert visible_devices(node(*["MI300X"] * 8), ["gpu-2", "gpu-5"]) == {
        "ROCR_VISIBLE_DEVICES": "2,5",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert visible_devices(node("H100", "H100"), ["gpu-1"])["CUDA_VISIBLE_DEVICES"] == "1"
    assert visible_devices(node("NVIDIA-GeForce-RTX-4090"), ["gpu-0"])["CUDA_VISIBLE_DEVICES"] == "0"
    for model in ("gfx1100", "AMD-Raphael", "Radeon-RX-6700", "MI50", "amd-73df"):
        assert visible_devices(node(model), ["gpu-0"])["ROCR_VISIBLE_DEVICES"] == "0"


def test_the_vendor_that_a_machine_reports_counts_more_than_the_name_of_a_model() -> None:
    unknown = Node("n", gpus=(Gpu("gpu-0", "Aldebaran", 1, vendor="amd"), Gpu("gpu-1", "Mist", 1, vendor="nvidia")))
    assert visible_devices(unknown, ["gpu-0", "gpu-1"]) == {
        "ROCR_VISIBLE_DEVICES": "0",
        "HIP_VISIBLE_DEVICES": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
    }


def test_a_process_knows_its_rank_and_the_nodes_of_all_ranks() -> None:
    gang = [Pod("w", f"main-{at}", f"n{at}", rank=rank) for at, rank in enumerate((2, 0, 1))]
    launcher = Pod("w", "launcher-0", "n9")
    shared = {
        "KAIWO_WORLD_SIZE": "3",
        "KAIWO_RANK_PODS": "main-1,main-2,main-0",
        "KAIWO_RANK_NODES": "n1,n2,n0",
    }
    assert rank_variables(gang[0], [*gang, launcher]) == {"KAIWO_RANK": "2"} | shared
    assert rank_variables(launcher, [*gang, launcher]) == shared
    assert rank_variables(launcher, [launcher]) == {}


def test_work_without_devices_sees_none() -> None:
    assert visible_devices(node("H100"), [])["CUDA_VISIBLE_DEVICES"] == "-1"
    assert visible_devices(node("MI300X"), [])["HIP_VISIBLE_DEVICES"] == "-1"
    assert visible_devices(node(), []) == {}
    assert visible_devices(None, []) == {}
