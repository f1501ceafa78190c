"""The numbers that ROCr gives to GPUs are told where they are sure, and are nobody's guess elsewhere."""

import errno
import os
from pathlib import Path

import pytest

from kaiwo.devices.amd import sysfs_files
from kaiwo.devices.discover import discover
from kaiwo.devices.sharing.prepare_grants import GpuSharing
from kaiwo.devices.sharing.share_types import Grant, GrantRequest, IsolationSupport, Refusal
from kaiwo.model.gpus.gpu import Share
from tests.devices.amd_trees import Box, address, uuid, write_box

NODES = "sys/class/kfd/kfd/topology/nodes"
SECOND = 3  # the node of the second GPU: two CPUs come first


def orders(root: Path) -> list[int | None]:
    return [gpu.order for gpu in discover(str(root)).gpus]


def spoil(root: Path, how: str) -> None:
    path = root / NODES / str(SECOND) / "properties"
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if how == "empty" else b"\x00\xff" * 40)


@pytest.mark.parametrize("how", ["missing", "empty", "noise"])
def test_gpus_after_a_node_that_cannot_be_read_have_no_number(tmp_path: Path, how: str) -> None:
    write_box(tmp_path, Box(gpus=4))
    assert orders(tmp_path) == [0, 1, 2, 3]
    spoil(tmp_path, how)
    found = discover(str(tmp_path))
    assert {gpu.id: gpu.order for gpu in found.gpus} == {address(0): 0, **{address(n): None for n in (1, 2, 3)}}
    note = f"node {SECOND} of the topology can't be read: ROCr's indices of the GPUs after it are unknown"
    assert note in found.notes
    assert [gpu.id for gpu in found.gpus if gpu.health != "healthy"] == [address(1)]  # the others are well


def test_nothing_is_in_doubt_when_the_last_node_cannot_be_read(tmp_path: Path) -> None:
    write_box(tmp_path, Box(gpus=2))
    spoil(tmp_path, "empty")
    found = discover(str(tmp_path))
    assert [gpu.order for gpu in found.gpus] == [0, None]
    assert not any("ROCr" in note for note in found.notes)


def test_a_gpu_that_our_cgroup_may_not_use_is_passed_over_as_rocr_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_box(tmp_path, Box(gpus=3))
    plain, kept_out = sysfs_files.read_bytes, f"nodes/{SECOND}/properties"

    def read(path: str, most: int = sysfs_files.MAX_BYTES) -> bytes:
        if path.endswith(kept_out):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
        return plain(path, most)

    monkeypatch.setattr(sysfs_files, "read_bytes", read)
    found = discover(str(tmp_path))
    assert {gpu.id: gpu.order for gpu in found.gpus} == {address(0): 0, address(1): None, address(2): 1}
    assert not any("ROCr" in note for note in found.notes)


def ask(*numbers: int, milli: int = 1000) -> GrantRequest:
    return GrantRequest("job", tuple(Share(address(number), milli, 196 * milli) for number in numbers))


def test_no_process_of_the_machine_is_sent_to_a_guess(tmp_path: Path) -> None:
    spoil(write_box(tmp_path / "tree", Box(gpus=4)), "missing")
    sharing = GpuSharing(str(tmp_path / "shares"), discover(str(tmp_path / "tree")), IsolationSupport())
    refused = sharing.prepare(ask(2))
    assert isinstance(refused, Refusal)
    assert f"ROCr's index of {address(2)} is unknown" in refused.reason
    granted = sharing.prepare(ask(0))
    assert isinstance(granted, Grant)
    assert granted.environment["ROCR_VISIBLE_DEVICES"] == uuid(0)


def test_in_a_container_the_order_of_the_nodes_is_enough(tmp_path: Path) -> None:
    """There ROCr counts what the container was given, in the kernel's order: that is known still."""
    spoil(write_box(tmp_path / "tree", Box(gpus=4)), "missing")
    sharing = GpuSharing(
        str(tmp_path / "shares"), discover(str(tmp_path / "tree")), IsolationSupport(), in_containers=True
    )
    granted = sharing.prepare(ask(3, 2, milli=500))
    assert isinstance(granted, Grant)
    assert [one.device.id for one in granted.held] == [address(2), address(3)]
    assert granted.environment["ROCR_VISIBLE_DEVICES"] == "-1"  # never of use there; as a number it would be a guess
