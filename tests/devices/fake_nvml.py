"""A made-up NVML: the functions of nvidia-ml-py that we ask, over described GPUs."""

# ruff: noqa: N802, N815 - the names are those of the package

import ctypes
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


class NVMLError(Exception):
    """As the package raises it, whatever the code."""


class FabricInfo(ctypes.Structure):
    _fields_ = [
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint8),
    ]


class FakeNvml:
    """`silent` names functions that this driver does not support; `lost` GPUs have fallen off the bus."""

    NVMLError = NVMLError
    c_nvmlGpuFabricInfo_t = FabricInfo

    def __init__(self, count: int = 2, silent: tuple[str, ...] = (), lost: tuple[int, ...] = (), **traits: Any) -> None:
        self.count, self.silent, self.lost = count, silent, lost
        self.product = traits.get("product", "NVIDIA H200")
        self.mig = traits.get("mig", ())  # profiles on every GPU
        self.is_mig_bare = traits.get("is_mig_bare", False)  # MIG is on, and nothing was made of it
        self.is_switched = traits.get("is_switched", True)
        self.rows = traits.get("rows", (0, 0, 0, 0))
        self.ecc = traits.get("ecc", (0, 0))
        self.started = 0

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("nvmlDeviceGet") and name in super().__getattribute__("silent"):
            return self.refuse
        return value

    def refuse(self, *_: Any) -> None:
        raise NVMLError("Not Supported")

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlShutdown(self) -> None:
        self.started -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if index in self.lost:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return f"{self.product} MIG {self.mig[handle[1]]}" if isinstance(handle, tuple) else self.product

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        return SimpleNamespace(busId=f"00000000:{27 + 16 * handle:02X}:00.0".encode(), pciDeviceId=0x233510DE)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        total = 16 * GIB if isinstance(handle, tuple) else 141 * GIB
        return SimpleNamespace(total=total, used=3 * GIB, free=total - 3 * GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetNumGpuCores(self, handle: Any) -> int:
        return 132 * 128

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return f"MIG-{handle[0]}-{handle[1]}" if isinstance(handle, tuple) else f"GPU-{handle}"

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [int(bool(self.mig) or self.is_mig_bare), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        if index >= len(self.mig):
            raise NVMLError("Not Found")
        return handle, index

    def nvmlDeviceGetAttributes(self, handle: Any) -> Any:
        return SimpleNamespace(multiprocessorCount=16, memorySizeMB=16384)

    def nvmlDeviceGetMemoryAffinity(self, handle: Any, size: int, scope: int) -> list[int]:
        return [2]

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=55, memory=11)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return 123_456

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return 38

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        return self.ecc[kind]

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, int, int, int]:
        return self.rows

    def nvmlDeviceGetGpuFabricInfo(self, handle: Any, pointer: Any) -> int:
        pointer._obj.state, pointer._obj.cliqueId = 3, 4
        pointer._obj.clusterUuid = (ctypes.c_uint8 * 16)(*range(16))
        return 0

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        if link >= 18:
            raise NVMLError("Invalid Argument")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int:
        return 2 if self.is_switched else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return self.nvmlDeviceGetPciInfo((handle + 1) % self.count)

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, index: int) -> int:
        return 0

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> int:
        return 50

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int]) -> Any:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=26_562))]
