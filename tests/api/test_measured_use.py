"""`GET /gpus` and one node: what each tenant was granted, how well it is kept apart, and what it really uses."""

from pathlib import Path
from typing import Any

from kaiwo.devices.agent_messages import GpuSample, Hello, PartitionUse, ProcessUse, Sample
from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu, Telemetry
from tests.api.world import World, world
from tests.waiting import run

GPU = PhysicalGpu("gpu-0", "amd", "MI300X", order=0, memory_mib=196_608)


async def shown(kaiwo: World) -> dict[str, Any]:
    return {gpu["id"]: gpu for gpu in (await kaiwo.get("/gpus")).json()["items"]}


def test_two_halves_are_told_apart_by_their_processes(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            agents = kaiwo.context.agents
            await agents.receive(Hello("node-0", "1", "", Inventory("node-0", (GPU,))))
            for name in ("left", "right"):
                await kaiwo.submit(name, gpuFraction="0.5", simulate="1h")
                await kaiwo.until_state(name, "running")
            runs = {
                name: kaiwo.cluster.abilities.devices.run_of(f"default/{name}", "main-0")[0]
                for name in ("left", "right")
            }
            uses = (
                ProcessUse(1, "gpu-0", 1_000, 30, owner=runs["left"]),
                ProcessUse(2, "gpu-0", 500, 5, owner=runs["left"]),
                ProcessUse(3, "gpu-0", 90_000, 60, owner=runs["right"]),
                ProcessUse(4, "gpu-0", 7, owner="somebody else"),
            )
            telemetry = Telemetry(utilisation_percent=95, memory_used_mib=91_507, power_w=700, temperature_c=61)
            await agents.receive(Sample("node-0", 1, 0.0, (GpuSample("gpu-0", telemetry, processes=uses),)))
            gpu = (await shown(kaiwo))["gpu-0"]
            assert gpu["measured"] | {"ago_s": 0} == {
                "busy_percent": 95, "memory_mib": 91_507, "power_w": 700, "temperature_c": 61, "processes": 4,
                "ago_s": 0,
            }  # fmt: skip
            found = {tenant["workload"]: tenant for tenant in gpu["tenants"]}
            assert {tenant["grade"] for tenant in found.values()} == {"cu-mask"}
            left, right = found["default/left"]["measured"], found["default/right"]["measured"]
            assert (left["busy_percent"], left["memory_mib"], left["processes"]) == (35, 1_500, 2)
            assert (right["busy_percent"], right["memory_mib"], right["processes"]) == (60, 90_000, 1)
            assert (await kaiwo.get("/nodes/node-0")).json()["gpus"][0]["measured"]["power_w"] == 700

    run(look())


def test_whole_gpus_that_are_shared_are_halves_that_take_turns(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            for name in ("left", "right"):
                await kaiwo.submit(name, gpus=1, gpuSharing=True, simulate="1h")
                await kaiwo.until_state(name, "running")
            tenants = (await shown(kaiwo))["gpu-0"]["tenants"]
            found = [(each["milli"], each["mib"], each["grade"]) for each in tenants]
            assert found == [(500, 98_304, "time-slicing")] * 2
            (asked,) = (await kaiwo.get("/workloads/default/left")).json()["requests"]
            assert asked.startswith("main: 1 pod, 0.5 GPU by time-slicing")

    run(look())


def test_a_partition_has_its_own_use_and_whoever_is_alone_has_all_of_it(tmp_path: Path) -> None:
    parts = tuple(Partition(f"gpu-0-p{at}", at, memory_mib=24_576, compute_units=38) for at in range(8))
    cut = PhysicalGpu(
        "gpu-0", "amd", "MI300X", compute_mode="CPX", memory_mode="NPS1", compute_units=304, partitions=parts
    )

    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            agents = kaiwo.context.agents
            await agents.receive(Hello("node-0", "1", "", Inventory("node-0", (cut,))))
            await kaiwo.submit("small", gpuPartition="CPX", simulate="1h")
            await kaiwo.until_state("small", "running")
            uses = tuple(PartitionUse(part.id, 100 * part.index, part.index) for part in parts)
            await agents.receive(Sample("node-0", 1, 0.0, (GpuSample("gpu-0", partitions=uses),)))
            devices = await shown(kaiwo)
            assert devices["gpu-0-p3"]["measured"]["memory_mib"] == 300
            (held,) = (device for device in devices.values() if device["tenants"])
            (tenant,) = held["tenants"]
            assert tenant["grade"] == "partition"
            assert tenant["measured"]["memory_mib"] == held["measured"]["memory_mib"]
            assert (held["profile"], held["parent"]) == ("CPX+NPS1", "gpu-0")

    run(look())


def test_nobody_measures_a_node_without_an_agent(tmp_path: Path) -> None:
    async def look() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            assert {gpu["measured"] for gpu in (await shown(kaiwo)).values()} == {None}
            assert (await kaiwo.get("/nodes/node-0")).json()["agent"] is None

    run(look())
