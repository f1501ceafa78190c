"""NVIDIA's GPUs through a made-up NVML. The real one is tried in test_real_nvidia.py, where there is a GPU."""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kaiwo.devices.gpu_names import nvidia_model
from kaiwo.devices.inventory import Errors, Inventory, PhysicalGpu, Telemetry
from kaiwo.devices.nvidia import discover_gpus
from kaiwo.devices.sampling.nvidia_gpus import XidWatch
from kaiwo.devices.sharing.share_types import IsolationSupport
from kaiwo.runtime.nodes.local_node import devices_of
from tests.devices.fake_nvml import FakeNvml, NVMLError

QUESTIONS = [name for name, _ in inspect.getmembers(FakeNvml, inspect.isfunction) if name.startswith("nvmlDeviceGet")]


def read(monkeypatch: pytest.MonkeyPatch, library: Any) -> list[PhysicalGpu]:
    monkeypatch.setitem(sys.modules, "pynvml", library)
    gpus, notes = discover_gpus.read_gpus()
    assert notes == []
    return gpus


def test_everything_that_nvml_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeNvml(2, ecc=(4, 0))
    first, second = read(monkeypatch, library)
    assert library.started == 0
    assert (first.id, first.pci, second.pci) == ("0000:1b:00.0", "0000:1b:00.0", "0000:2b:00.0")
    assert (first.model, first.product, first.vendor, first.device_id) == ("H200", "NVIDIA H200", "nvidia", "0x2335")
    assert (first.memory_mib, first.memory_from, first.compute_units, first.target) == (
        141 * 1024,
        "driver",
        132,
        "sm_90",
    )
    assert (first.order, second.order, first.serial, first.numa) == (0, 1, "GPU-0", 1)
    assert first.telemetry == Telemetry(55, 3072, 11, 38, None, 123, 700)
    assert first.errors == Errors(4, 0, 0)
    assert (first.health, first.partitions, first.compute_mode) == ("healthy", (), "")
    assert first.hive == "00010203-0405-0607-0809-0a0b0c0d0e0f.4"


def test_links_through_switches_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    link = read(monkeypatch, FakeNvml(2))[0].links[0]
    assert (link.to, link.kind, link.count, link.bandwidth_mb_s, link.weight) == (
        "0000:2b:00.0",
        "nvlink",
        18,
        478_116,
        50,
    )
    ring = read(monkeypatch, FakeNvml(4, is_switched=False, silent=("nvmlDeviceGetP2PStatus",)))
    assert [[(link.kind, link.count) for link in gpu.links] for gpu in ring[:1]] == [
        [("nvlink", 18), ("pcie", None), ("pcie", None)]
    ]
    bus = read(monkeypatch, FakeNvml(2, silent=("nvmlDeviceGetNvLinkState",)))
    assert [link.kind for link in bus[0].links] == ["pcie"]
    assert read(monkeypatch, FakeNvml(1))[0].links == ()


def test_mig_devices_are_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = read(monkeypatch, FakeNvml(1, product="NVIDIA A100-SXM4-80GB", mig=("1g.10gb", "3g.40gb")))[0]
    assert (gpu.model, gpu.compute_mode, gpu.order) == ("A100", "MIG", None)
    assert [(part.id, part.index, part.profile, part.uuid) for part in gpu.partitions] == [
        ("0000:1b:00.0-MIG-0-0", 0, "1g.10gb", "MIG-0-0"),
        ("0000:1b:00.0-MIG-0-1", 1, "3g.40gb", "MIG-0-1"),
    ]
    assert {(part.memory_mib, part.compute_units) for part in gpu.partitions} == {(16_384, 16)}


def test_a_gpu_with_mig_on_and_no_instance_takes_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """To CUDA it is no device at all; and the agent that looks again says the same."""
    library = FakeNvml(1, is_mig_bare=True)
    gpu = read(monkeypatch, library)[0]
    assert (gpu.health, gpu.reason, gpu.partitions) == ("degraded", discover_gpus.NO_INSTANCES, ())
    assert [device.healthy for device in devices_of(Inventory("n", (gpu,), ()), IsolationSupport())] == [False]
    assert discover_gpus.NvmlReader(library, True).errors(0)[1] == [discover_gpus.NO_INSTANCES]
    assert read(monkeypatch, FakeNvml(1, mig=("1g.18gb",)))[0].health == "healthy"


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name not in ("nvmlDeviceGetCount",)])
def test_a_question_that_is_not_answered_costs_only_itself(monkeypatch: pytest.MonkeyPatch, question: str) -> None:
    is_of_mig = "MigDevice" in question  # MIG is on, and of what was made of it nothing is known
    for library in (FakeNvml(2, silent=(question,)), FakeNvml(2, silent=(question,), mig=("1g.18gb",))):
        gpus = read(monkeypatch, library)
        assert len(gpus) == 2
        if question not in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetHandleByIndex") and not (
            library.mig and is_of_mig
        ):
            assert {gpu.health for gpu in gpus} == {"healthy"}
        assert library.started == 0


def test_an_old_library_lacks_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo")
    library = FakeNvml(2)
    old = SimpleNamespace(NVMLError=NVMLError, **{name: getattr(library, name) for name in kept})
    gpus = read(monkeypatch, old)
    assert [(gpu.id, gpu.memory_mib, gpu.health) for gpu in gpus] == [
        ("nvidia-0", 144_384, "healthy"),
        ("nvidia-1", 144_384, "healthy"),
    ]


def test_a_gpu_that_fell_off_the_bus_is_still_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = read(monkeypatch, FakeNvml(3, lost=(1,)))
    assert [(gpu.health, gpu.reason) for gpu in gpus] == [("healthy", ""), ("failed", "gpu is lost"), ("healthy", "")]
    assert gpus[1].id == "nvidia-1"


@pytest.mark.parametrize(
    ("traits", "health", "reason"),
    [
        ({"ecc": (9, 0)}, "healthy", ""),
        ({"ecc": (0, 2)}, "degraded", "the hardware counted 2 uncorrectable errors"),
        ({"rows": (1, 1, 1, 0)}, "degraded", "memory rows must be remapped: reset the GPU"),
        ({"rows": (0, 8, 0, 1)}, "failed", "a memory row could not be remapped: the GPU must be replaced"),
    ],
)
def test_memory_that_wears_out(monkeypatch: pytest.MonkeyPatch, traits: Any, health: str, reason: str) -> None:
    gpu = read(monkeypatch, FakeNvml(1, **traits))[0]
    assert (gpu.health, gpu.reason) == (health, reason)


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_silent_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, broken: str) -> None:
    library = FakeNvml(2)
    setattr(library, broken, library.refuse)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(discover_gpus, "DRIVER_LIST", str(tmp_path / "missing"))
    assert discover_gpus.read_gpus()[0] == []


def test_gpus_that_we_cannot_ask_are_mentioned(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(discover_gpus, "DRIVER_LIST", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert discover_gpus.read_gpus() == ([], [])
    (tmp_path / "0000:1b:00.0").mkdir()
    assert discover_gpus.read_gpus()[1] == [
        "there is 1 NVIDIA GPU here, but the package nvidia-ml-py is not installed: pip install 'kaiwo[nvidia]'"
    ]


def test_without_the_driver_the_bindings_are_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(discover_gpus, "DRIVER_LIST", str(tmp_path))
    monkeypatch.setattr(discover_gpus, "LIBRARY", "libnot-there.so.1")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert discover_gpus.read_gpus() == ([], [])
    (tmp_path / "0000:1b:00.0").mkdir()
    assert discover_gpus.read_gpus()[1] == [
        "there is 1 NVIDIA GPU here, but NVML does not initialise: libnot-there.so.1 is not found"
    ]
    assert "pynvml" not in sys.modules


def test_a_fabric_that_is_not_ready_has_no_clique(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover_gpus, "FABRIC_COMPLETED", 9)
    assert read(monkeypatch, FakeNvml(1))[0].hive == ""


def test_names_of_products() -> None:
    assert nvidia_model("NVIDIA H100 80GB HBM3") == "H100"
    assert nvidia_model("NVIDIA GeForce RTX 4090") == "NVIDIA-GeForce-RTX-4090"
    assert nvidia_model("") == "NVIDIA"


def test_xids_of_programs_are_not_the_gpus_fault() -> None:
    library: Any = FakeNvml(2)
    events = [SimpleNamespace(device=1, eventData=79), SimpleNamespace(device=0, eventData=31)]

    def wait(_: Any, timeout_ms: int) -> Any:
        if not events:
            raise NVMLError("Timeout")
        return events.pop(0)

    def register(handle: int, *_: Any) -> None:
        if handle == 0:
            raise NVMLError("Not Supported")

    freed: list[str] = []
    library.nvmlEventSetCreate = lambda: "set"
    library.nvmlDeviceRegisterEvents = register
    library.nvmlEventSetWait_v2 = wait
    library.nvmlEventSetFree = freed.append
    watch = XidWatch(library, [0, 1])
    assert watch.poll(1000) == [("0000:2b:00.0", 79)]
    assert watch.poll() == []
    watch.close()
    assert freed == ["set"]
