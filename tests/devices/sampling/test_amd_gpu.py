"""AMD's GPUs every second, from made-up and from real trees."""

import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaiwo.devices.agent_messages import GpuSample, PartitionUse, ProcessUse, Sample
from kaiwo.devices.discover import discover
from kaiwo.devices.inventory import Telemetry
from kaiwo.devices.sampling import amd_processes
from kaiwo.devices.sampling.sampler import Sampler
from tests.devices import file_damage as damage
from tests.devices.amd_trees import PCI, Box, address, write_box
from tests.devices.sampling.kfd_processes import PROC, write_process

FIRST = 24_248  # the kernel's number of the first GPU of a made-up tree
TREES = ("topo-mi300-cpx", "topology-parsing-mi308", "topo-mi210-xgmi-pcie", "topology-parsing")


def sampler_of(root: Path) -> Sampler:
    return Sampler(discover(str(root), has_telemetry=False), str(root))


def look(root: Path) -> Sample:
    sampler = sampler_of(root)
    try:
        return sampler.sample(1.0)
    finally:
        sampler.close()


def by_id(sample: Sample) -> dict[str, GpuSample]:
    return {gpu.id: gpu for gpu in sample.gpus}


def test_a_look_at_a_whole_gpu(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2))
    write_process(tmp_path, 4242, {FIRST: 2048, FIRST + 64: 0}, busy_units=152, queues=3)
    first, second = look(tmp_path).gpus
    assert first.telemetry == Telemetry(37, 297, 5, 41, 33, 124, 750)
    assert first.errors.corrected == 3
    assert (first.health, first.reason) == ("healthy", "")
    assert first.processes == (ProcessUse(4242, first.id, 2048, 50, 3),)
    assert second.processes == ()


def test_partitions_tell_what_their_processes_use(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2, compute="CPX", memory="NPS4"))
    write_process(tmp_path, 10, {FIRST + 1: 1000, FIRST + 2: 500}, busy_units=19)
    write_process(tmp_path, 11, {FIRST + 1: 24, FIRST + 64: 8}, busy_units=38)
    gpus = by_id(look(tmp_path))
    name = address(0)
    parts = {part.id: part for part in gpus[name].partitions}
    assert len(parts) == 8
    assert parts[f"{name}-p1"] == PartitionUse(f"{name}-p1", 1024, 100, 2)
    assert parts[f"{name}-p2"] == PartitionUse(f"{name}-p2", 500, 50, 1)
    assert parts[f"{name}-p0"] == PartitionUse(f"{name}-p0", 0, 0, 0)
    assert {use.device for use in gpus[address(1)].processes} == {f"{address(1)}-p0"}


def test_partitions_of_which_nobody_tells_are_not_measured(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1, compute="CPX"))
    name = address(0)
    untold = {part.id: part for part in by_id(look(tmp_path))[name].partitions}
    assert untold[f"{name}-p0"] == PartitionUse(f"{name}-p0", None, None, 0)  # there is no list of processes
    process = write_process(tmp_path, 10, {FIRST + 1: 1000}, busy_units=19)
    (process / f"vram_{FIRST + 1}").write_text("?")
    (process / f"stats_{FIRST + 1}" / "cu_occupancy").unlink()
    told = {part.id: part for part in by_id(look(tmp_path))[name].partitions}
    assert told[f"{name}-p0"] == PartitionUse(f"{name}-p0", 0, 0, 0)  # there is one, and nobody of it is here
    assert told[f"{name}-p1"] == PartitionUse(f"{name}-p1", None, None, 1)  # somebody is, and does not tell


def test_values_change_while_the_files_stay_open(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    sampler = sampler_of(tmp_path)
    busy = tmp_path / PCI / address(0) / "gpu_busy_percent"
    for percent in (0, 55, 100):
        busy.write_text(f"{percent}\n")
        assert sampler.sample(0).gpus[0].telemetry.utilisation_percent == percent
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        sampler.sample(0)
    assert len(os.listdir("/proc/self/fd")) == before
    sampler.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_too_many_on_one_gpu_is_told(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    for pid in range(100, 111):
        write_process(tmp_path, pid, {FIRST: 64}, queues=2)
    assert look(tmp_path).gpus[0].oversubscribed == ""
    write_process(tmp_path, 111, {FIRST: 64})
    assert "12 processes" in look(tmp_path).gpus[0].oversubscribed
    for pid in (110, 111):
        (tmp_path / PROC / str(pid)).rename(tmp_path / f"gone-{pid}")
    write_process(tmp_path, 112, {FIRST: 64}, queues=6)
    assert "26 queues" in look(tmp_path).gpus[0].oversubscribed


def test_errors_that_cannot_be_mended_fail_the_gpu_within_five_looks(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    sampler = sampler_of(tmp_path)
    assert sampler.sample(0).gpus[0].health == "healthy"
    (tmp_path / PCI / address(0) / "ras" / "umc_err_count").write_text("ue: 2\nce: 2\n")
    seen = [sampler.sample(0).gpus[0] for _ in range(5)]
    assert seen[-1].health == "failed"
    assert "2 uncorrectable errors" in seen[-1].reason
    sampler.close()


def test_a_gpu_that_falls_off_the_bus_has_failed(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2))
    sampler = sampler_of(tmp_path)
    (tmp_path / PCI / address(1)).rename(tmp_path / "gone")
    first, second = sampler.sample(0).gpus
    assert first.health == "healthy"
    assert (second.health, second.reason) == ("failed", "the GPU is gone from the PCI bus")
    sampler.close()


@pytest.mark.parametrize("text", ["junk", "12 34", "\x00\xff", "-5", "99999", "1e9", "½"])
@pytest.mark.parametrize("name", ["gpu_busy_percent", "hwmon/hwmon3/temp2_input", "hwmon/hwmon3/power1_average"])
def test_nonsense_in_one_file_degrades_its_gpu_only(tmp_path: Path, name: str, text: str) -> None:
    write_box(tmp_path, Box(gpus=2))
    if name != "gpu_busy_percent" and text == "99999":
        text = "99999999999999"
    (tmp_path / PCI / address(0) / name).write_text(text)
    first, second = look(tmp_path).gpus
    assert first.health == "degraded"
    assert name.rpartition("/")[2] in first.reason
    assert first.telemetry.memory_used_mib == 297
    assert second.health == "healthy"


@pytest.mark.parametrize("text", ["", "N/A", "\n"])
def test_what_a_driver_does_not_tell_is_no_illness(tmp_path: Path, text: str) -> None:
    write_box(tmp_path, Box(gpus=1))
    for name in ("gpu_busy_percent", "mem_busy_percent", "hwmon/hwmon3/power1_cap"):
        (tmp_path / PCI / address(0) / name).write_text(text)
    gpu = look(tmp_path).gpus[0]
    assert gpu.health == "healthy"
    assert (gpu.telemetry.utilisation_percent, gpu.telemetry.power_limit_w, gpu.telemetry.power_w) == (None, None, 124)


def test_processes_that_come_go_or_make_no_sense(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=1))
    folder = write_process(tmp_path, 7, {FIRST: 10})
    write_process(tmp_path, 8, {FIRST: 20})
    (folder / f"vram_{FIRST}").write_text("junk")
    for name in ("nonsense", "-3", "99999999999999999999"):
        (tmp_path / PROC / name).mkdir()
    (tmp_path / PROC / "9").write_text("a file")
    sampler = sampler_of(tmp_path)
    assert {(use.pid, use.memory_mib) for use in sampler.sample(0).gpus[0].processes} == {(7, None), (8, 20)}
    for path in sorted((tmp_path / PROC / "8").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / PROC / "8").rmdir()
    assert {use.pid for use in sampler.sample(0).gpus[0].processes} == {7}
    sampler.close()


def test_many_processes_are_looked_at_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd_processes, "MAX_FILES", 20)
    write_box(tmp_path, Box(gpus=1))
    for pid in range(50, 80):
        write_process(tmp_path, pid, {FIRST: pid})
    sampler = sampler_of(tmp_path)
    counts = [len(sampler.sample(0).gpus[0].processes) for _ in range(8)]
    assert counts[0] < 30
    assert counts == sorted(counts)
    assert counts[-1] == 30
    sampler.close()


@pytest.mark.parametrize("name", TREES)
def test_real_trees_are_sampled(real_trees: Path, name: str) -> None:
    """They hold the topology alone: nothing is measured, and nothing is wrong for that."""
    sample = look(real_trees / name)
    found = discover(str(real_trees / name))
    assert [gpu.id for gpu in sample.gpus] == [gpu.id for gpu in found.gpus]
    assert [gpu.health for gpu in sample.gpus] == [gpu.health for gpu in found.gpus]
    assert sum(len(gpu.partitions) for gpu in sample.gpus) == sum(len(gpu.partitions) for gpu in found.gpus)
    msgspec.json.encode(sample)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_box(tmp_path_factory.mktemp("box"), Box(gpus=2, compute="QPX"))
    for pid in (5, 6):
        write_process(root, pid, {FIRST: 100, FIRST + 65: 200}, busy_units=3)
    return root


@given(st.integers(0, 1 << 32), st.integers(1, 8), st.booleans())
def test_no_damage_makes_it_crash(box: Path, seed: int, count: int, is_early: bool) -> None:
    """Before the files are opened, and while they are open."""
    live = [path for path in sorted(box.rglob("*")) if path.is_file() and "topology" not in path.parts]
    before = None if is_early else sampler_of(box)
    if before:
        before.sample(0)
    with damage.spoilt(live, random.Random(seed), count):
        sampler = before or sampler_of(box)
        for _ in range(2):
            sample = sampler.sample(0)
            msgspec.json.encode(sample)
            assert all((gpu.health == "healthy") == (gpu.reason == "") for gpu in sample.gpus)
        sampler.close()
