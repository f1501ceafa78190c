"""NVIDIA's error events: what NVML tells only while somebody listens.

In:    a started NVML and its devices.   Out: (PCI address, XID) of each event that says the GPU itself is ill.
Never: waits longer than it is told to; takes a program's mistake for the GPU's.
"""

from collections.abc import Iterable
from typing import Any

from kaiwo.devices.nvlink import address_of

XID_EVENT = 8
MOST_EVENTS = 64
# A program's own faults: bad memory access, exception, stopped, killed. The GPU is well.
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 109})


class XidWatch:
    """Listens to the GPUs that can tell; `deaf` names the others."""

    def __init__(self, nvml: Any, handles: Iterable[Any]) -> None:
        self.nvml = nvml
        self.deaf: list[Any] = []
        self._events = nvml.nvmlEventSetCreate()
        for handle in handles:
            try:
                nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._events)
            except nvml.NVMLError:
                self.deaf.append(handle)

    def poll(self, timeout_ms: int = 0) -> list[tuple[str, int]]:
        """What happened since the last call."""
        found: list[tuple[str, int]] = []
        for _ in range(MOST_EVENTS):
            try:
                event = self.nvml.nvmlEventSetWait_v2(self._events, timeout_ms)
                address = address_of(self.nvml.nvmlDeviceGetPciInfo(event.device))
            except self.nvml.NVMLError:  # nothing more to tell
                break
            if event.eventData not in PROGRAM_XIDS:
                found.append((address, int(event.eventData)))
            timeout_ms = 0
        return found

    def close(self) -> None:
        self.nvml.nvmlEventSetFree(self._events)
