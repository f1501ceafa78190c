"""On a machine with NVIDIA GPUs: what we read is what nvidia-smi says."""

import shutil
import subprocess

import pytest

from kaiwo.devices.discover import discover
from kaiwo.devices.nvidia import discover_gpus

pytestmark = pytest.mark.real
FIELDS = "pci.bus_id,uuid,name,memory.total,power.limit,temperature.gpu"


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    if not shutil.which("nvidia-smi"):
        pytest.skip("there is no nvidia-smi on this machine")
    command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nvidia-smi does not work here: {done.stdout.strip() or done.stderr.strip()}")
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def test_nvml_and_nvidia_smi_agree(rows: list[list[str]]) -> None:
    gpus, notes = discover_gpus.read_gpus()
    assert notes == []
    assert len(gpus) == len(rows)
    for gpu, (bus, uuid, product, memory, limit, heat) in zip(gpus, rows, strict=True):
        assert gpu.pci == bus.lower()[4:]
        assert (gpu.serial, gpu.product, gpu.memory_mib) == (uuid, product, int(memory))
        assert gpu.telemetry.power_limit_w == round(float(limit))
        assert abs((gpu.telemetry.temperature_c or 0) - int(heat)) <= 5
        assert gpu.compute_units


def test_discovery_finds_them_too(rows: list[list[str]]) -> None:
    found = [gpu for gpu in discover().gpus if gpu.vendor == "nvidia"]
    assert [gpu.serial for gpu in found] == [row[1] for row in rows]
