"""Whose a process is: told by its cgroup or its environment, asked once."""

from pathlib import Path

from kaiwo.devices.discover import discover
from kaiwo.devices.sampling.sampler import ProcessOwners, Sampler
from tests.devices.amd_trees import Box, write_box
from tests.devices.sampling.kfd_processes import write_process

UID = "1b2c3d4e-1111-2222-3333-444455556666"


def write(root: Path, pid: int, name: str, content: bytes) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def test_a_run_is_known_by_its_variable_and_a_pod_by_its_group(tmp_path: Path) -> None:
    write(tmp_path, 1, "environ", b"HOME=/root\0KAIWO_RUN=ab12cd\0PATH=/bin\0")
    group = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-1.scope\n"
    write(tmp_path, 2, "cgroup", group.encode())
    write(tmp_path, 3, "cgroup", f"12:devices:/kubepods/burstable/pod{UID}/abc\n".encode())
    write(tmp_path, 4, "environ", b"NOT_KAIWO_RUN=ab12cd\0")
    owners = ProcessOwners(str(tmp_path), sees_processes=True)
    assert [owners.owner(pid) for pid in range(1, 6)] == ["ab12cd", UID, UID, "", ""]


def test_a_number_that_is_used_again_is_looked_at_again(tmp_path: Path) -> None:
    write(tmp_path, 1, "environ", b"KAIWO_RUN=first\0")
    owners = ProcessOwners(str(tmp_path), sees_processes=True)
    assert owners.owner(1) == "first"
    write(tmp_path, 1, "environ", b"KAIWO_RUN=second\0")
    assert owners.owner(1) == "first"
    owners.keep_only([])
    assert owners.owner(1) == "second"


def test_without_the_nodes_processes_nobody_is_known(tmp_path: Path) -> None:
    write(tmp_path, 1, "environ", b"KAIWO_RUN=first\0")
    assert ProcessOwners(str(tmp_path), sees_processes=False).owner(1) == ""


def test_samples_carry_the_owner(tmp_path: Path) -> None:
    root = write_box(tmp_path, Box(gpus=1))
    write_process(root, 77, {24_248: 1000})
    write(root, 77, "environ", b"KAIWO_RUN=mine\0")
    sampler = Sampler(discover(str(root), has_telemetry=False), str(root))
    (gpu,) = sampler.sample(0.0).gpus
    assert [use.owner for use in gpu.processes] == ["mine"]
    sampler.close()
