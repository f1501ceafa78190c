"""The kernel's caps on device memory, on a made-up cgroup tree."""

from pathlib import Path

import pytest

from kaiwo.devices.sharing import dmem_cgroup
from kaiwo.model.errors import ClusterError

REGION = "drm/0000:05:00.0/vram"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "dmem.capacity").write_text(f"{REGION} 206141652992\ndrm/0000:05:00.0/stolen 67108864\n")
    return tmp_path


def test_the_memory_that_can_be_capped(tree: Path, tmp_path: Path) -> None:
    assert dmem_cgroup.regions(str(tree)) == (REGION, "drm/0000:05:00.0/stolen")
    (tree / "dmem.capacity").write_text("junk\n\n")
    assert dmem_cgroup.regions(str(tree)) == ()
    (tree / "dmem.capacity").unlink()
    assert dmem_cgroup.regions(str(tree)) == ()
    assert dmem_cgroup.regions(str(tmp_path / "nowhere")) == ()


def test_a_group_has_its_caps_in_bytes(tree: Path) -> None:
    folder = Path(dmem_cgroup.make_group("one", {REGION: 4096}, str(tree)))
    assert folder == tree / "kaiwo" / "one"
    assert (folder / "dmem.max").read_text() == f"{REGION} {4096 << 20}"
    assert (tree / "cgroup.subtree_control").read_text() == "+dmem"
    assert (tree / "kaiwo" / "cgroup.subtree_control").read_text() == "+dmem"
    (folder / "dmem.max").unlink()  # a real group's files go with it
    dmem_cgroup.remove_group(str(folder))
    assert not folder.exists()
    dmem_cgroup.remove_group(str(folder))


def test_a_kernel_that_says_no_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="does not cap device memory for one"):
        dmem_cgroup.make_group("one", {REGION: 1}, str(tmp_path / "nowhere"))
