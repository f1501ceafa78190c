"""Broken trees give degraded devices with reasons, and never a crash."""

import errno
import os
import random
import shutil
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.amd import discover_gpus, kfd_topology, sysfs_files
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Inventory, PhysicalGpu
from tests.devices import file_damage as damage
from tests.devices.amd_trees import KFD, PCI, Box, address, write_box

BOXES = (
    Box(gpus=3, compute="QPX", memory="NPS4"),
    Box(gpus=4, has_sysfs=False),
    Box("MI210", 2),
    Box("MI308X", 2, "CPX", has_banks=False, xcp="amdgpu_xcp.{}"),
)
TREES = ("topo-mi300-cpx", "topology-parsing-mi308", "topo-mi210-xgmi-pcie", "topology-parsing")


def check(found: Inventory) -> None:
    """What is always so."""
    msgspec.json.encode(found)
    assert len({gpu.id for gpu in found.gpus}) == len(found.gpus)
    parts = [part.id for gpu in found.gpus for part in gpu.partitions]
    assert len(set(parts)) == len(parts)
    for gpu in found.gpus:
        for part in (gpu, *gpu.partitions):
            assert (part.health == "healthy") == (part.reason == ""), part
            assert part.memory_mib >= 0
            assert part.compute_units >= 0
        if gpu.health == "healthy":
            assert gpu.memory_mib
            assert gpu.compute_units
            assert gpu.pci


def facts(gpu: PhysicalGpu) -> tuple[object, ...]:
    parts = [(part.id, part.memory_mib, part.compute_units, part.health) for part in gpu.partitions]
    return gpu.id, gpu.model, gpu.memory_mib, gpu.compute_units, gpu.health, parts


@pytest.mark.parametrize("spoil", damage.TOTAL, ids=lambda spoil: spoil.__name__)
def test_a_gpu_whose_properties_are_gone_is_degraded(tmp_path: Path, spoil: damage.Damage) -> None:
    write_box(tmp_path, Box(gpus=4, has_sysfs=False))
    before = {gpu.id: facts(gpu) for gpu in discover(str(tmp_path)).gpus}
    spoil(tmp_path / KFD / "4" / "properties", random.Random(3))
    found = discover(str(tmp_path))
    check(found)
    assert len(found.gpus) == 4
    ill = [gpu for gpu in found.gpus if gpu.health == "degraded"]
    assert len(ill) == 1
    assert "properties" in ill[0].reason
    assert sum(facts(gpu) == before.get(gpu.id) for gpu in found.gpus) == 3


def test_wherever_the_properties_are_cut_the_gpu_is_degraded(tmp_path: Path) -> None:
    write_box(tmp_path, Box("MI210", 3, has_sysfs=False, has_links=False))
    path = tmp_path / KFD / "3" / "properties"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = discover(str(tmp_path))
        check(found)
        assert [gpu.health for gpu in found.gpus] == ["healthy", "degraded", "healthy"], whole[:size]
        assert "properties" in found.gpus[1].reason


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EIO, errno.ENODEV, errno.ESTALE])
@pytest.mark.parametrize("box", BOXES)
def test_a_forbidden_file_costs_only_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: Box, code: int
) -> None:
    """The tests may run as root, whom no mode stops: so the kernel's answer is played."""
    write_box(tmp_path, box)
    paths = sorted(str(path) for path in tmp_path.rglob("*") if path.is_file() and "io_links" not in path.parts)
    forbidden = ""
    really_open = os.open

    def refuse(path: str, *args: int) -> int:
        if path == forbidden:
            raise OSError(code, os.strerror(code), path)
        return really_open(path, *args)

    monkeypatch.setattr(sysfs_files.os, "open", refuse)
    for forbidden in random.Random(code).sample(paths, min(len(paths), 25)):
        found = discover(str(tmp_path))
        check(found)
        assert len(found.gpus) >= box.gpus
        is_gpu_node = forbidden.endswith("/properties") and "/mem_banks/" not in forbidden
        number = int(Path(forbidden).parent.name) if is_gpu_node else 0
        if is_gpu_node and number > 1:
            ill = [part for gpu in found.gpus for part in (gpu, *gpu.partitions) if part.health != "healthy"]
            assert any(os.strerror(code).lower() in part.reason for part in ill), forbidden


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [write_box(tmp_path_factory.mktemp("box"), box) for box in BOXES]


@given(st.integers(0, len(BOXES) - 1), st.integers(0, 1 << 32), st.integers(1, 6))
def test_no_damage_of_a_made_up_tree_makes_it_crash(boxes: list[Path], number: int, seed: int, count: int) -> None:
    with damage.spoilt(files_in(boxes[number]), random.Random(seed), count):
        check(discover(str(boxes[number])))


@given(st.sampled_from(TREES), st.integers(0, 1 << 32), st.integers(1, 6))
def test_no_damage_of_a_real_tree_makes_it_crash_or_hurts_the_others(
    real_trees: Path, name: str, seed: int, count: int
) -> None:
    root = real_trees / name
    before = as_it_is(root)
    with damage.spoilt(files_in(root), random.Random(seed), count) as paths:
        found = discover(str(root))
    check(found)
    nodes = next(root.glob("**/nodes"))
    assert_others_are_well(found, before, {int(path.relative_to(nodes).parts[0]) for path in paths})


@cache
def files_in(root: Path) -> list[Path]:
    """Of the links, which are nearly all of them, only some: the rest is more interesting."""
    every = sorted(path for path in root.rglob("*") if path.is_file() and path.parent != root)
    every = [path for path in every if path.parent.name != "topology"]
    links = [path for path in every if "_links" in str(path)]
    others = [path for path in every if "_links" not in str(path)]
    return others + random.Random(1).sample(links, min(len(links), len(others)))


@cache
def as_it_is(root: Path) -> Inventory:
    return discover(str(root))


def assert_others_are_well(found: Inventory, before: Inventory, touched: set[int]) -> None:
    """A GPU none of whose nodes was touched is told as before, unless a spoilt one took its name."""
    now = {gpu.id: gpu for gpu in found.gpus}
    for gpu in before.gpus:
        nodes = {part.node for part in gpu.partitions} or {gpu.node}
        if not nodes & touched and not any(gpu.id in note for note in (*found.notes, *before.notes)):
            assert facts(now[gpu.id]) == facts(gpu)


def test_folders_may_be_anything_too(tmp_path: Path) -> None:
    """Of a whole folder nothing is left: a file, a loop, a dangling link stand in its place."""
    for number, place in enumerate(
        (KFD, f"{KFD}/2", f"{KFD}/2/io_links", f"{KFD}/3/mem_banks", PCI, f"{PCI}/{address(0)}/ras")
    ):
        for instead in ("file", "loop", "dangling"):
            root = write_box(tmp_path / f"{number}-{instead}", Box(gpus=2))
            target = root / place
            shutil.rmtree(target)
            if instead == "file":
                target.write_text("I am a file\n")
            else:
                target.symlink_to(target.name if instead == "loop" else "nowhere")
            check(discover(str(root)))


def test_a_loop_of_folders_ends(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    for place in (f"{KFD}/2/io_links/9", f"{PCI}/{address(0)}/drm/card9", "sys/devices/pci0000:00"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).symlink_to(tmp_path, target_is_directory=True)
    check(discover(str(tmp_path)))


def test_a_topology_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / KFD).parent.mkdir(parents=True)
    (tmp_path / KFD).write_text("no folder\n")
    found = discover(str(tmp_path))
    assert found.gpus == ()
    assert any("not a directory" in note for note in found.notes)


def test_more_nodes_than_are_read_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_box(tmp_path, Box(gpus=2, has_sysfs=False))
    assert discover(str(tmp_path)).notes == ()
    for module in (kfd_topology, discover_gpus):
        monkeypatch.setattr(module, "MAX_NODES", 3)
    found = discover(str(tmp_path))
    check(found)
    assert len(found.gpus) == 1
    assert any("more than 3 nodes; only the first 3 are read" in note for note in found.notes)
