"""Sample NVIDIA GPUs through an NVML that stays open, and collect their XID error events."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from kaiwo.devices.agent_messages import GpuSample, PartitionUse, ProcessUse
from kaiwo.devices.inventory import Errors, Health, PhysicalGpu, join_reasons
from kaiwo.devices.nvidia.discover_gpus import NvmlReader, pci_address

XID_EVENT = 8
MAX_EVENTS = 64
# Faults of a program: bad memory access, exception, stopped, killed. The GPU itself is healthy.
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})


class XidWatch:
    def __init__(self, nvml: Any, handles: Iterable[Any]) -> None:
        self.nvml = nvml
        self._events = nvml.nvmlEventSetCreate()
        for handle in handles:
            with contextlib.suppress(nvml.NVMLError):  # not every GPU reports events
                nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._events)

    def poll(self, timeout_ms: int = 0) -> list[tuple[str, int]]:
        """The (PCI address, XID) events since the last call."""
        found: list[tuple[str, int]] = []
        for _ in range(MAX_EVENTS):
            try:
                event = self.nvml.nvmlEventSetWait_v2(self._events, timeout_ms)
                address = pci_address(self.nvml.nvmlDeviceGetPciInfo(event.device))
            except self.nvml.NVMLError:  # no more events
                break
            if event.eventData not in PROGRAM_XIDS:
                found.append((address, int(event.eventData)))
            timeout_ms = 0
        return found

    def close(self) -> None:
        self.nvml.nvmlEventSetFree(self._events)


COUNTERS_EVERY = 3  # samples; error counters change rarely, and changed health must show within 5 s


class NvidiaSampler:
    def __init__(self, nvml: Any, gpus: Sequence[PhysicalGpu]) -> None:
        self.nvml = nvml
        self._reader = NvmlReader(nvml, True)
        self._query = self._reader.query
        self._gpus = gpus
        nvml.nvmlInit()
        self._handles = {gpu.id: self._handle(gpu) for gpu in gpus}
        self._watch = self._watch_xids()
        self._counter_cache: dict[str, tuple[int | None, Errors, list[str], bool]] = {}
        self._last_sample_us: dict[str, int] = {}
        self._xid_problems: dict[str, str] = {}  # kept until the agent restarts
        self._age = 0

    def sample(self) -> list[GpuSample]:
        events = self._watch.poll() if self._watch else []
        found = [self._sample(gpu, [xid for address, xid in events if address == gpu.pci]) for gpu in self._gpus]
        self._age += 1
        return found

    def close(self) -> None:
        try:
            if self._watch:
                self._watch.close()
            self.nvml.nvmlShutdown()
        except self.nvml.NVMLError:
            return

    def _sample(self, gpu: PhysicalGpu, xids: list[int]) -> GpuSample:
        handle = self._handles[gpu.id]
        if xids:
            self._xid_problems[gpu.id] = f"the driver reported XID {', '.join(map(str, sorted(set(xids))))}"
        if handle is None:
            return GpuSample(gpu.id, health="failed", reason=gpu.reason or "the driver can't find it", xids=tuple(xids))
        limit, errors, problems, is_failed = self._counters(gpu.id, handle)
        memory = self._query("nvmlDeviceGetMemoryInfo", handle)
        if memory is None:
            problems = [*problems, "the used memory is unknown"]
        problems = [self._xid_problems.get(gpu.id, ""), *problems]
        health: Health = "failed" if is_failed else "degraded" if any(problems) else "healthy"
        processes = tuple(self._processes(gpu, handle))
        return GpuSample(
            id=gpu.id,
            telemetry=self._reader.telemetry(handle, memory, limit),
            errors=errors,
            health=health,
            reason=join_reasons(problems),
            xids=tuple(xids),
            partitions=self._partitions(gpu, processes),
            processes=processes,
        )

    def _counters(self, name: str, handle: Any) -> tuple[int | None, Errors, list[str], bool]:
        if name not in self._counter_cache or self._age % COUNTERS_EVERY == 0:
            self._counter_cache[name] = (self._reader.power_limit_w(handle), *self._reader.errors(handle))
        return self._counter_cache[name]

    def _processes(self, gpu: PhysicalGpu, handle: Any) -> list[ProcessUse]:
        if gpu.partitions:
            pairs = [(part.id, self._query("nvmlDeviceGetHandleByUUID", part.uuid)) for part in gpu.partitions]
        else:
            pairs = [(gpu.id, handle)]
        found = []
        for device, place in pairs:
            running = self._query("nvmlDeviceGetComputeRunningProcesses", place) if place is not None else None
            busy = self._busy(device, handle) if running and place is handle else {}
            for process in running or ():
                memory = process.usedGpuMemory
                found.append(ProcessUse(process.pid, device, memory >> 20 if memory else None, busy.get(process.pid)))
        return found

    def _busy(self, device: str, handle: Any) -> dict[int, int]:
        """The percentage of time in which each process computed; NVML returns samples since the last call."""
        reported = self._query("nvmlDeviceGetProcessUtilization", handle, self._last_sample_us.get(device, 0)) or ()
        newest: dict[int, Any] = {}
        for one in reported:
            if one.pid not in newest or one.timeStamp > newest[one.pid].timeStamp:
                newest[one.pid] = one
        if newest:
            self._last_sample_us[device] = max(one.timeStamp for one in newest.values())
        return {pid: min(100, one.smUtil) for pid, one in newest.items()}

    def _partitions(self, gpu: PhysicalGpu, processes: Sequence[ProcessUse]) -> tuple[PartitionUse, ...]:
        found = []
        for part in gpu.partitions:
            handle = self._query("nvmlDeviceGetHandleByUUID", part.uuid)
            memory = self._query("nvmlDeviceGetMemoryInfo", handle) if handle is not None else None
            count = sum(process.device == part.id for process in processes)
            found.append(PartitionUse(part.id, memory.used >> 20 if memory else None, None, count))
        return tuple(found)

    def _handle(self, gpu: PhysicalGpu) -> Any:
        return self._query("nvmlDeviceGetHandleByUUID", gpu.serial) if gpu.serial else None

    def _watch_xids(self) -> XidWatch | None:
        try:
            return XidWatch(self.nvml, [handle for handle in self._handles.values() if handle is not None])
        except (self.nvml.NVMLError, AttributeError):
            return None
