"""An implausible value in a report is dropped alone: the other devices of the node are reported as usual."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.devices.agent_messages import GpuSample, Hello, PartitionUse, ProcessUse, Sample
from kaiwo.devices.inventory import Errors, Inventory, Link, Partition, PhysicalGpu, Telemetry
from kaiwo.runtime.nodes.agent_report_checks import check_devices, check_inventory, check_sample, check_wiring
from kaiwo.runtime.nodes.local_node import devices_of, wiring_of
from tests.api.test_agents import GPUS, HELLO, INVENTORY, WELL, send
from tests.api.world import world
from tests.waiting import run, until

FALSE_MIB = (-1, 1 << 40)


@pytest.mark.parametrize("mib", FALSE_MIB)
def test_a_device_with_false_memory_does_not_silence_the_others(tmp_path: Path, mib: int) -> None:
    bad = Hello("node-0", "1", "boot", Inventory("node-0", (replace(GPUS[0], memory_mib=mib), *GPUS[1:])))

    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            assert (await send(kaiwo, bad, WELL)).json() == {"lines": 2}
            devices = kaiwo.cluster.state.nodes["node-0"].gpus
            assert [gpu.healthy for gpu in devices] == [False] + [True] * 7
            assert f"says {mib} MiB" in devices[0].reason
            agent = (await kaiwo.get("/nodes/node-0")).json()["agent"]
            assert agent["notes"] == [f"gpu-0: its agent says {mib} MiB, which no GPU has"]
            await kaiwo.submit("seven", gpus=7, simulate="1h")
            await kaiwo.until_state("seven", "running")
            await send(kaiwo, HELLO, WELL)
            await until(lambda: kaiwo.cluster.state.nodes["node-0"].gpus[0].healthy)

    run(look())


@pytest.mark.parametrize("mib", FALSE_MIB)
def test_a_partition_with_false_memory_is_degraded_alone(mib: int) -> None:
    parts = tuple(Partition(f"gpu-0-p{index}", index, memory_mib=24_576) for index in range(8))
    cut = replace(GPUS[0], partitions=(replace(parts[0], memory_mib=mib), *parts[1:]))
    found = check_inventory(Inventory("node-0", (cut,)))
    devices = devices_of(found.inventory)
    check_devices(devices)
    assert [gpu.healthy for gpu in devices] == [False] + [True] * 7
    assert "partition 0" in found.notes[0]


@pytest.mark.parametrize(
    "spoilt",
    [
        replace(GPUS[0], numa=-5),
        replace(GPUS[0], numa=1 << 40),
        replace(GPUS[0], links=(Link("gpu-1", "xgmi", bandwidth_mb_s=1 << 60),)),
        replace(GPUS[0], links=(Link("gpu-1", "xgmi", count=1 << 60),)),
        replace(GPUS[0], links=(Link("gpu-1", "xgmi", bandwidth_mb_s=-7),)),
    ],
)
def test_links_and_numa_nodes_beyond_all_measure_are_left_out(spoilt: PhysicalGpu) -> None:
    second = replace(GPUS[1], links=(Link("gpu-0", "xgmi", bandwidth_mb_s=50_000),))
    found = check_inventory(Inventory("node-0", (spoilt, second)))
    devices = devices_of(found.inventory)
    check_wiring(wiring_of(found.inventory, devices))
    assert all(gpu.healthy for gpu in devices)
    assert found.inventory.gpus[1] == second
    assert len(found.notes) == 1


def test_what_is_true_is_left_as_it_is() -> None:
    telemetry = Telemetry(100, 196_000, 0, 110, 95, 0, 1000)
    uses = (ProcessUse(7, "gpu-0", 196_000, 100, 24, "run"),)
    sample = replace(WELL, gpus=(GpuSample("gpu-0", telemetry, Errors(0, 9, 1), processes=uses), *WELL.gpus[1:]))
    assert check_inventory(INVENTORY) == (INVENTORY, {}, ())
    assert check_sample(sample, INVENTORY, {}) is sample


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("utilisation_percent", -500),
        ("utilisation_percent", 101),
        ("memory_used_mib", 10**15),
        ("memory_used_mib", -1),
        ("memory_used_mib", 400_000),  # on a GPU of 196,608
        ("memory_busy_percent", 1 << 62),
        ("temperature_c", 5000),
        ("memory_temperature_c", -300),
        ("power_w", -3),
        ("power_limit_w", 10**9),
    ],
)
def test_telemetry_that_cannot_be_is_dropped_with_a_note(tmp_path: Path, name: str, value: int) -> None:
    true = Telemetry(10, 2000, 5, 40, 41, 120, 750)
    false = GpuSample("gpu-0", replace(true, **{name: value}))

    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            assert (await send(kaiwo, HELLO, Sample("node-0", 1, 0.0, (false, *WELL.gpus[1:])))).is_success
            heard = kaiwo.context.agents.of("node-0")
            assert heard is not None
            seen = heard.gpu("gpu-0")
            assert seen is not None
            assert seen.telemetry == replace(true, **{name: None})
            listed = (await kaiwo.get("/agents")).json()["items"][0]
            assert listed["notes"] == [f"gpu-0: {name} {value} is impossible and ignored"]

    run(look())


def test_what_processes_and_partitions_use_is_checked_too() -> None:
    uses = (ProcessUse(7, "gpu-0", -1, 900, -2), ProcessUse(8, "gpu-0", 100, 50, 1))
    parts = (PartitionUse("gpu-0-p0", 1 << 50, -4, 1),)
    told = Sample("node-0", 1, 0.0, (GpuSample("gpu-0", errors=Errors(-1, None, 2), partitions=parts, processes=uses),))
    gpu = (found := check_sample(told, INVENTORY, {})).gpus[0]
    assert gpu.processes == (ProcessUse(7, "gpu-0"), uses[1])
    assert gpu.partitions == (PartitionUse("gpu-0-p0", None, None, 1),)
    assert gpu.errors == Errors(None, None, 2)
    assert len(found.notes) == 6
