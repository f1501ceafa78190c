"""Discover the NVIDIA GPUs of this machine through NVML, with their MIG devices, NVLink and PCIe links.

Never: loses a GPU or a value because another query fails.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from ctypes import CDLL, byref
from typing import Any

from msgspec.structs import replace

from kaiwo.devices.gpu_names import nvidia_model
from kaiwo.devices.inventory import NO_MEMORY, Errors, Link, Partition, PhysicalGpu, Telemetry, join_reasons

DRIVER_LIST = "/proc/driver/nvidia/gpus"
LIBRARY = "libnvidia-ml.so.1"  # comes with the driver
PCI_DEVICES = "/sys/bus/pci/devices"
MIG_ON = 1
SCOPE_NODE = 0
NO_INSTANCES = "MIG is on without any instance, so CUDA can't use it: create instances, or disable MIG"
MAX_LINKS = 36
ACTIVE = 1
TO_GPU, TO_SWITCH = 0, 2
P2P_NVLINK, P2P_OK = 2, 0
SPEED_FIELD = 90  # of one link in MB/s
FABRIC_COMPLETED = 3
# Cores in a multiprocessor, by compute capability; all others have 128.
_CORES = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}


def read_gpus(has_telemetry: bool = True) -> tuple[list[PhysicalGpu], list[str]]:
    """Every GPU in the order of NVML, which is that of the PCI bus."""
    if "pynvml" not in sys.modules and not _has_library():
        return [], _note_if_driver_has_gpus(f"NVML does not initialise: {LIBRARY} is not found")
    try:
        import pynvml
    except ImportError:
        return [], _note_if_driver_has_gpus("the package nvidia-ml-py is not installed: pip install 'kaiwo[nvidia]'")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], _note_if_driver_has_gpus(f"NVML does not initialise: {_error_text(error)}")
    try:
        return NvmlReader(pynvml, has_telemetry).gpus()
    except pynvml.NVMLError as error:
        return [], [f"NVIDIA's driver can't list its GPUs: {_error_text(error)}"]
    finally:
        pynvml.nvmlShutdown()


def _has_library() -> bool:
    """Without NVIDIA's driver the bindings are not imported: they take 8 ms of each start."""
    try:
        CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _note_if_driver_has_gpus(why: str) -> list[str]:
    try:
        count = len(os.listdir(DRIVER_LIST))
    except OSError:
        return []
    return [f"there {'is 1 NVIDIA GPU' if count == 1 else f'are {count} NVIDIA GPUs'} here, but {why}"] if count else []


class NvmlReader:
    def __init__(self, nvml: Any, has_telemetry: bool) -> None:
        self.nvml = nvml
        self.has_telemetry = has_telemetry

    def gpus(self) -> tuple[list[PhysicalGpu], list[str]]:
        found: list[PhysicalGpu] = []
        handles: dict[str, Any] = {}
        for index in range(self.nvml.nvmlDeviceGetCount()):
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
            except self.nvml.NVMLError as error:
                reason = _error_text(error).lower()
                found.append(
                    PhysicalGpu(f"nvidia-{index}", "nvidia", "NVIDIA", order=index, health="failed", reason=reason)
                )
                continue
            gpu = self._gpu(index, handle)
            handles[gpu.id] = handle
            found.append(gpu)
        return [replace(gpu, links=gpu_links(self, gpu.id, handles)) for gpu in found], []

    def query(self, name: str, *args: Any) -> Any:
        """Call an NVML function; None if this GPU, driver or library does not support it."""
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        if function is None:
            return None
        try:
            return function(*args)
        except self.nvml.NVMLError:
            return None

    def _gpu(self, index: int, handle: Any) -> PhysicalGpu:
        info = self.query("nvmlDeviceGetPciInfo", handle)
        pci, device_id = pci_address(info), getattr(info, "pciDeviceId", 0) >> 16
        product = decode_text(self.query("nvmlDeviceGetName", handle))
        memory = self.query("nvmlDeviceGetMemoryInfo", handle)
        memory_mib = memory.total >> 20 if memory else 0
        capability = self.query("nvmlDeviceGetCudaComputeCapability", handle) or (0, 0)
        cores = self.query("nvmlDeviceGetNumGpuCores", handle) or 0
        mig = self.query("nvmlDeviceGetMigMode", handle)
        is_mig = self._is_mig(handle)
        name = pci or f"nvidia-{index}"
        errors, problems, is_failed = self.errors(handle)
        problems += [] if memory_mib else [NO_MEMORY]
        return PhysicalGpu(
            id=name,
            vendor="nvidia",
            model=nvidia_model(product),
            product=product,
            order=None if is_mig else index,
            pci=pci,
            device_id=f"0x{device_id:04x}" if device_id else "",
            target=f"sm_{capability[0]}{capability[1]}" if capability[0] else "",
            serial=decode_text(self.query("nvmlDeviceGetUUID", handle)),
            numa=self._numa(pci, handle),
            memory_mib=memory_mib,
            memory_from="driver" if memory_mib else "",
            compute_units=cores // _CORES.get(tuple(capability), 128),
            compute_mode="MIG" if is_mig else "",
            compute_modes=("MIG",) if mig else (),
            hive=fabric_clique(self, handle),
            telemetry=self.telemetry(handle, memory, self.power_limit_w(handle)) if self.has_telemetry else Telemetry(),
            errors=errors,
            health="failed" if is_failed else "degraded" if problems else "healthy",
            reason=join_reasons(problems),
            partitions=self._mig_devices(name, handle) if is_mig else (),
        )

    def _is_mig(self, handle: Any) -> bool:
        mig = self.query("nvmlDeviceGetMigMode", handle)
        return bool(mig) and mig[0] == MIG_ON

    def _mig_handles(self, handle: Any) -> Iterator[tuple[int, Any]]:
        for index in range(self.query("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            mig = self.query("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if mig is not None:  # else an unused slot
                yield index, mig

    def _mig_devices(self, name: str, handle: Any) -> tuple[Partition, ...]:
        found = []
        for index, mig in self._mig_handles(handle):
            memory = self.query("nvmlDeviceGetMemoryInfo", mig)
            attributes = self.query("nvmlDeviceGetAttributes", mig)
            uuid = decode_text(self.query("nvmlDeviceGetUUID", mig))
            profile = decode_text(self.query("nvmlDeviceGetName", mig)).rpartition("MIG ")[2]
            found.append(
                Partition(
                    id=f"{name}-{uuid or f'p{index}'}",
                    index=index,
                    memory_mib=memory.total >> 20 if memory else getattr(attributes, "memorySizeMB", 0),
                    compute_units=getattr(attributes, "multiprocessorCount", 0),
                    profile=profile if "g." in profile else "",
                    uuid=uuid,
                )
            )
        return tuple(found)

    def _numa(self, pci: str, handle: Any) -> int | None:
        try:
            with open(os.path.join(PCI_DEVICES, pci, "numa_node"), encoding="ascii") as file:
                reported = int(file.read(16))
            if reported >= 0:
                return reported
        except (OSError, ValueError):
            pass
        mask = self.query("nvmlDeviceGetMemoryAffinity", handle, 1, SCOPE_NODE)
        return int(mask[0]).bit_length() - 1 if mask and mask[0] else None

    def power_limit_w(self, handle: Any) -> int | None:
        limit_mw = self.query("nvmlDeviceGetEnforcedPowerLimit", handle)
        return None if limit_mw is None else round(limit_mw / 1000)

    def telemetry(self, handle: Any, memory: Any, power_limit_w: int | None) -> Telemetry:
        rates = self.query("nvmlDeviceGetUtilizationRates", handle)
        power_mw = self.query("nvmlDeviceGetPowerUsage", handle)
        return Telemetry(
            utilisation_percent=rates.gpu if rates else None,
            memory_used_mib=memory.used >> 20 if memory else None,
            memory_busy_percent=rates.memory if rates else None,
            temperature_c=self.query("nvmlDeviceGetTemperature", handle, 0),
            power_w=None if power_mw is None else round(power_mw / 1000),
            power_limit_w=power_limit_w,
        )

    def errors(self, handle: Any) -> tuple[Errors, list[str], bool]:
        """Volatile ECC counters, problems, and whether the GPU failed.

        A failed row remap means worn-out memory. With MIG on but no instance, programs have no device.
        """
        corrected, uncorrected = (self.query("nvmlDeviceGetTotalEccErrors", handle, kind, 0) for kind in (0, 1))
        rows = self.query("nvmlDeviceGetRemappedRows", handle)
        bad = rows[0] + rows[1] if rows else None
        problems = [f"the hardware counted {uncorrected} uncorrectable errors"] if uncorrected else []
        if rows and rows[2]:
            problems.append("memory rows must be remapped: reset the GPU")
        if rows and rows[3]:
            problems.insert(0, "a memory row could not be remapped: the GPU must be replaced")
        if self._is_mig(handle) and not any(True for _ in self._mig_handles(handle)):
            problems.append(NO_INSTANCES)
        return Errors(corrected, uncorrected, bad), problems, bool(rows and rows[3])


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__


def gpu_links(reader: NvmlReader, name: str, handles: Mapping[str, Any]) -> tuple[Link, ...]:
    """Links from one GPU to all others: NVLink if there is one, else PCIe."""
    mine = handles.get(name)
    if mine is None or len(handles) < 2:
        return ()
    direct, switched = _count_links(reader, mine)
    speed = _speed(reader, mine)
    found = []
    for other, handle in sorted(handles.items()):
        if other == name:
            continue
        level = reader.query("nvmlDeviceGetTopologyCommonAncestor", mine, handle)
        count = direct.get(other, 0)
        is_switched = not count and reader.query("nvmlDeviceGetP2PStatus", mine, handle, P2P_NVLINK) == P2P_OK
        if is_switched:
            count = switched
        if count:
            rate = count * speed if speed else None
            found.append(Link(other, "nvlink", level, count=count, bandwidth_mb_s=rate, is_switched=is_switched))
        elif level is not None:
            found.append(Link(other, "pcie", level))
    return tuple(found)


def fabric_clique(reader: NvmlReader, handle: Any) -> str:
    """The fabric clique as cluster UUID and number; its GPUs share memory over NVLink, even across machines."""
    make = getattr(reader.nvml, "c_nvmlGpuFabricInfo_t", None)
    if make is None:
        return ""
    info = make()
    if reader.query("nvmlDeviceGetGpuFabricInfo", handle, byref(info)) is None:
        return ""
    cluster = bytes(info.clusterUuid)
    if info.state != FABRIC_COMPLETED or not any(cluster):
        return ""
    text = cluster.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}.{info.cliqueId}"


def pci_address(info: Any) -> str:
    """`00000000:1B:00.0` as 0000:1b:00.0."""
    domain, _, rest = decode_text(getattr(info, "busId", "")).lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest else ""
    except ValueError:
        return ""


def decode_text(value: Any) -> str:
    """Text; older versions of the package return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def _count_links(reader: NvmlReader, handle: Any) -> tuple[dict[str, int], int]:
    direct: dict[str, int] = {}
    switched = 0
    for link in range(MAX_LINKS):
        state = reader.query("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        if state != ACTIVE:
            continue
        kind = reader.query("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        other = pci_address(reader.query("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
        if kind == TO_GPU and other:
            direct[other] = direct.get(other, 0) + 1
        elif kind == TO_SWITCH:
            switched += 1
    return direct, switched


def _speed(reader: NvmlReader, handle: Any) -> int:
    values = reader.query("nvmlDeviceGetFieldValues", handle, [SPEED_FIELD])
    if not values or values[0].nvmlReturn != 0:
        return 0
    return int(values[0].value.uiVal)
