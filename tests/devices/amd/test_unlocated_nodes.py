"""A node that does not say where it is belongs to a GPU all the same: none is listed twice."""

import errno
import os
from pathlib import Path

import pytest

from kaiwo.devices.amd import sysfs_files
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import PhysicalGpu
from tests.devices.amd_trees import KFD, PCI, Box, address, write_box, write_files

PAIR = [address(0), address(1)]


def emptied(root: Path, box: Box, *nodes: int) -> tuple[PhysicalGpu, ...]:
    write_box(root, box)
    for node in nodes:
        (root / KFD / str(node) / "properties").write_text("")
    return discover(str(root)).gpus


@pytest.mark.parametrize("model", ["MI300X", "MI210"])
@pytest.mark.parametrize("node", [2, 3])
def test_a_gpu_whose_node_is_empty_is_the_pci_device_that_no_node_names(tmp_path: Path, model: str, node: int) -> None:
    gpus = emptied(tmp_path, Box(model), node)
    assert sorted(gpu.id for gpu in gpus) == PAIR
    ill = next(gpu for gpu in gpus if gpu.id == PAIR[node - 2])
    assert (ill.health, ill.model, ill.node) == ("degraded", model, node)
    assert "properties is empty" in ill.reason
    assert [gpu.health for gpu in gpus].count("healthy") == 1


def test_a_node_that_may_not_be_read_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_box(tmp_path, Box())
    really_open = os.open

    def refuse(path: str, *args: int) -> int:
        if path.endswith("nodes/3/properties"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really_open(path, *args)

    monkeypatch.setattr(sysfs_files.os, "open", refuse)
    gpus = discover(str(tmp_path)).gpus
    assert [(gpu.id, gpu.health) for gpu in gpus] == [(PAIR[0], "healthy"), (PAIR[1], "degraded")]
    assert "permission denied" in gpus[1].reason


@pytest.mark.parametrize("has_sysfs", [True, False])
@pytest.mark.parametrize("model", ["MI300X", "MI308X"])
def test_an_empty_node_of_a_cut_gpu_is_its_missing_partition(tmp_path: Path, model: str, has_sysfs: bool) -> None:
    box = Box(model, compute="CPX", has_sysfs=has_sysfs)
    for node in range(2, 2 + 2 * box.parts):
        gpus = emptied(tmp_path / str(node), box, node)
        assert [gpu.id for gpu in gpus] == PAIR
        assert [len(gpu.partitions) for gpu in gpus] == [box.parts] * 2
        ill = [(number, part) for number, gpu in enumerate(gpus) for part in gpu.partitions if part.reason]
        assert [(number, part.index) for number, part in ill] == [divmod(node - 2, box.parts)]
        assert gpus[ill[0][0]].health == "degraded"


def test_several_lost_nodes_never_make_more_gpus_than_there_are(tmp_path: Path) -> None:
    box = Box(gpus=3, compute="QPX", memory="NPS4")
    for lost in ((2, 3), (5, 6), (6, 7, 8, 9), (2, 6, 10), tuple(range(2, 14))):
        gpus = emptied(tmp_path / str(lost), box, *lost)
        assert sorted(gpu.id for gpu in gpus) == [address(number) for number in range(3)]
        assert any(gpu.health == "degraded" for gpu in gpus)


@pytest.mark.parametrize(("compute", "node", "place"), [("SPX", 3, 9472), ("CPX", 12, 9474)])
def test_a_place_where_nothing_is_is_not_believed(tmp_path: Path, compute: str, node: int, place: int) -> None:
    write_box(tmp_path, Box(compute=compute))
    path = tmp_path / KFD / str(node) / "properties"
    path.write_text(path.read_text().replace(f"location_id {place}\n", "location_id 94\n"))
    gpus = discover(str(tmp_path)).gpus
    assert [(gpu.id, gpu.health) for gpu in gpus] == [(PAIR[0], "healthy"), (PAIR[1], "degraded")]
    assert "location_id 94" in gpus[1].reason


def test_a_node_too_many_is_noted(tmp_path: Path) -> None:
    write_box(tmp_path, Box())
    write_files(tmp_path / KFD / "7", {"properties": "", "gpu_id": 77})
    found = discover(str(tmp_path))
    assert [(gpu.id, gpu.health) for gpu in found.gpus] == [(name, "healthy") for name in PAIR]
    assert any("node 7 of the topology is ignored" in note for note in found.notes)


@pytest.mark.parametrize("compute", ["SPX", "CPX"])
def test_virtual_functions_are_where_they_say(tmp_path: Path, compute: str) -> None:
    write_box(tmp_path, Box(compute=compute))
    for path in (*tmp_path.glob(f"{KFD}/*/properties"), *tmp_path.glob(f"{PCI}/*/device")):
        text = path.read_text().replace(f"device_id {0x74A1}\n", f"device_id {0x74B5}\n")
        path.write_text(text.replace("0x74a1", "0x74b5"))
    found = discover(str(tmp_path))
    assert [(gpu.id, gpu.platform, gpu.health, gpu.reason) for gpu in found.gpus] == [
        (name, "vf", "healthy", "") for name in PAIR
    ]
    assert [len(gpu.partitions) for gpu in found.gpus] == [8 if compute == "CPX" else 0] * 2
