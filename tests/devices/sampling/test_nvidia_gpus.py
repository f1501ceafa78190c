"""NVIDIA's GPUs every second, through a made-up NVML."""

# ruff: noqa: N802 - the names are those of the package

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from kaiwo.devices.agent_messages import ProcessUse
from kaiwo.devices.inventory import Inventory, Telemetry
from kaiwo.devices.nvidia.discover_gpus import NvmlReader
from kaiwo.devices.sampling.sampler import Sampler
from tests.devices.fake_nvml import FakeNvml, NVMLError


class LiveNvml(FakeNvml):
    """Two processes on each GPU, and events."""

    def __init__(self, *args: Any, **traits: Any) -> None:
        super().__init__(*args, **traits)
        self.events: list[tuple[int, int]] = []

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        kind, *numbers = uuid.split("-")
        if kind == "MIG":
            return int(numbers[0]), int(numbers[1])
        if int(numbers[0]) in self.lost:
            raise NVMLError("GPU is lost")
        return int(numbers[0])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        return [SimpleNamespace(pid=100, usedGpuMemory=1 << 30), SimpleNamespace(pid=200, usedGpuMemory=None)]

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[Any]:
        samples = [(100, 5, 10), (100, 9, 62), (200, 7, 101)]
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=busy) for pid, at, busy in samples if at > since]

    def nvmlEventSetCreate(self) -> int:
        return 1

    def nvmlEventSetFree(self, events: int) -> None:
        return

    def nvmlDeviceRegisterEvents(self, handle: Any, kind: int, events: int) -> None:
        return

    def nvmlEventSetWait_v2(self, events: int, timeout: int) -> Any:
        if not self.events:
            raise NVMLError("Timeout")
        gpu, xid = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventData=xid)


QUESTIONS = [name for name, _ in inspect.getmembers(LiveNvml, inspect.isfunction) if name.startswith("nvmlDeviceGet")]


def sampler_of(nvml: Any) -> Sampler:
    gpus, _ = NvmlReader(nvml, False).gpus()
    return Sampler(Inventory("box", tuple(gpus)), "/nowhere", nvml)


def test_a_look_at_two_gpus() -> None:
    nvml = LiveNvml(2, ecc=(4, 0))
    sampler = sampler_of(nvml)
    first, second = sampler.sample(1.0).gpus
    assert first.telemetry == Telemetry(55, 3072, 11, 38, None, 123, 700)
    assert (first.errors.corrected, first.health, first.reason) == (4, "healthy", "")
    assert first.processes == (ProcessUse(100, first.id, 1024, 62), ProcessUse(200, first.id, None, 100))
    assert second.processes[0].device == second.id
    again = sampler.sample(2.0).gpus[0]
    assert [use.busy_percent for use in again.processes] == [None, None]  # nothing newer
    sampler.close()
    assert nvml.started == 0


def test_mig_devices_have_their_own_memory_and_processes() -> None:
    sampler = sampler_of(LiveNvml(1, mig=("1g.18gb", "3g.71gb")))
    gpu = sampler.sample(0).gpus[0]
    assert [(part.memory_used_mib, part.processes) for part in gpu.partitions] == [(3072, 2), (3072, 2)]
    assert {use.device for use in gpu.processes} == {part.id for part in gpu.partitions}


def test_an_event_that_says_the_gpu_is_ill_degrades_it_and_stays() -> None:
    nvml = LiveNvml(2)
    sampler = sampler_of(nvml)
    nvml.events = [(1, 79), (0, 13)]  # 13 is a program's own fault
    first, second = sampler.sample(0).gpus
    assert (first.health, first.xids) == ("healthy", ())
    assert (second.health, second.xids, second.reason) == ("degraded", (79,), "the driver reported XID 79")
    later = sampler.sample(0).gpus[1]
    assert (later.health, later.xids) == ("degraded", ())


def test_rows_that_cannot_be_remapped_fail_the_gpu() -> None:
    gpu = sampler_of(LiveNvml(1, rows=(0, 1, 0, 1))).sample(0).gpus[0]
    assert gpu.health == "failed"
    assert "must be replaced" in gpu.reason


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_that_is_not_answered_costs_only_itself(question: str) -> None:
    sampler = sampler_of(LiveNvml(2))
    sampler_nvml: Any = sampler._nvidia
    sampler_nvml.nvml.silent = (question,)
    gpus = sampler.sample(0).gpus
    assert len(gpus) == 2
    if question == "nvmlDeviceGetMemoryInfo":
        assert {gpu.health for gpu in gpus} == {"degraded"}
    else:
        assert {gpu.health for gpu in gpus} == {"healthy"}


def test_a_lost_gpu_is_listed_and_a_lost_library_is_told() -> None:
    healths = [gpu.health for gpu in sampler_of(LiveNvml(3, lost=(1,))).sample(0).gpus]
    assert healths == ["healthy", "failed", "healthy"]
    nvml = LiveNvml(1)
    gpus, _ = NvmlReader(nvml, False).gpus()

    def refuse() -> None:
        raise NVMLError("Driver Not Loaded")

    nvml.nvmlInit = refuse  # type: ignore[method-assign]
    sampler = Sampler(Inventory("box", tuple(gpus)), "/nowhere", nvml)
    sample = sampler.sample(0)
    assert sample.notes == ("NVIDIA GPUs are not sampled: Driver Not Loaded",)
    assert len(sample.gpus) == 1
