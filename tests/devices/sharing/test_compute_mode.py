"""Setting a GPU's compute mode, and what happens where that cannot be."""

# ruff: noqa: N802 - the names are those of the package

import sys
from typing import Any

import pytest

from kaiwo.devices.sharing.mps import DEFAULT, EXCLUSIVE_PROCESS, set_compute_mode
from tests.devices.fake_nvml import FakeNvml, NVMLError


class Modes(FakeNvml):
    def __init__(self, is_root: bool = True) -> None:
        super().__init__(1)
        self.mode, self.writes, self.is_root = DEFAULT, 0, is_root

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        if uuid != "GPU-0":
            raise NVMLError("Not Found")
        return 0

    def nvmlDeviceGetComputeMode(self, handle: Any) -> int:
        return self.mode

    def nvmlDeviceSetComputeMode(self, handle: Any, mode: int) -> None:
        if not self.is_root:
            raise NVMLError("Insufficient Permissions")
        self.mode, self.writes = mode, self.writes + 1


def test_it_is_set_when_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Modes()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert set_compute_mode("GPU-0", EXCLUSIVE_PROCESS)
    assert set_compute_mode("GPU-0", EXCLUSIVE_PROCESS)
    assert (nvml.mode, nvml.writes, nvml.started) == (EXCLUSIVE_PROCESS, 1, 0)
    assert set_compute_mode("GPU-0", DEFAULT)
    assert nvml.mode == DEFAULT


def test_without_rights_or_gpu_it_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Modes(is_root=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert not set_compute_mode("GPU-0", EXCLUSIVE_PROCESS)
    assert set_compute_mode("GPU-0", DEFAULT)  # it is so already
    assert not set_compute_mode("GPU-7", DEFAULT)
    assert nvml.started == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert not set_compute_mode("GPU-0", DEFAULT)
