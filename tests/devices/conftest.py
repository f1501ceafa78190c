"""The real trees, unpacked once for a run."""

import tarfile
from pathlib import Path

import pytest

ARCHIVE = "fixtures/gpu/rocm-k8s-device-plugin/testdata-kfd-topologies.tar.xz"


@pytest.fixture(scope="session")
def gpu_fixtures(shared_dir: Path) -> Path:
    folder = shared_dir / "fixtures" / "gpu"
    if not folder.is_dir():
        pytest.skip(f"the samples of real GPUs are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def real_trees(gpu_fixtures: Path, shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """topo-mi300-cpx, topology-parsing-mi308, topo-mi210-xgmi-pcie, topology-parsing."""
    folder = tmp_path_factory.mktemp("kfd")
    with tarfile.open(shared_dir / ARCHIVE) as archive:
        wanted = [member for member in archive if "/caches" not in member.name]  # nobody reads those
        archive.extractall(folder, wanted, filter="data")
    return folder
