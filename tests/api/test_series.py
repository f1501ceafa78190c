"""GET /api/v1/series: a running Kaiwo records what happens, and tells it as it was; what nobody knows is null."""

import resource
from pathlib import Path
from typing import Any

import pytest

from kaiwo.devices.agent_messages import GpuSample, Hello, PartitionUse, Sample
from kaiwo.devices.inventory import Inventory, Partition, PhysicalGpu, Telemetry
from kaiwo.history.series.series_file import FILE
from tests.api.world import World, world
from tests.waiting import run, until

PARTS = tuple(Partition(f"gpu-1-p{at}", at, memory_mib=24_576, compute_units=38) for at in range(8))
WHOLE = PhysicalGpu("gpu-0", "amd", "MI300X", order=0, memory_mib=196_608, compute_units=304)
CUT = PhysicalGpu("gpu-1", "amd", "MI300X", compute_mode="CPX", memory_mode="NPS1", compute_units=304, partitions=PARTS)


async def values(it: World, kind: str, measure: str, name: str, **query: Any) -> list[int | None]:
    found = (await it.get("/series", kind=kind, measure=measure, name=name, **query)).json()
    assert "series" in found, found
    return found["series"][0]["values"]  # type: ignore[no-any-return]


async def last(it: World, kind: str, measure: str, name: str) -> int | None:
    """As of the sample that a test took just now."""
    now_s = it.cluster.now_s()
    return (await values(it, kind, measure, name, **{"from": now_s - 60, "to": now_s + 600, "points": 1}))[0]


def test_what_work_holds_is_recorded_for_its_gpu_node_queue_and_user(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=2) as it:
            await it.submit("half", gpuFraction="0.5", simulate="1h", user="ada")
            await it.submit("wide", gpus=8, simulate="1h", user="ada")
            await it.submit("late", gpus=16, simulate="1h", user="grace")
            for name in ("half", "wide"):
                await it.until_state(name, "running")
            await it.context.series.sample(it.cluster.now_s())
            assert await last(it, "cluster", "gpu_used_milli", "cluster") == 8500
            assert await last(it, "cluster", "waiting", "cluster") == 1
            assert await last(it, "queue", "gpu_used_milli", "default") == 8500
            assert await last(it, "user", "gpu_used_milli", "ada") == 8500
            assert (await last(it, "user", "running", "ada"), await last(it, "user", "waiting", "grace")) == (2, 1)
            of_node = [await last(it, "node", "gpu_used_milli", f"node-{at}") for at in range(2)]
            assert sorted(of_node, key=str) == [500, 8000]
            subjects = (await it.get("/series/subjects", kind="gpu")).json()["names"]
            assert len(subjects) == 16
            held = [await last(it, "gpu", "allocated_milli", name) for name in subjects]
            assert sorted(held, key=lambda value: value or 0) == [0] * 7 + [500] + [1000] * 8
            assert await last(it, "gpu", "power_w", subjects[0]) is None, "no agent measures it"

    run(story())


def test_what_agents_measure_is_recorded_and_the_power_of_a_cut_gpu_only_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            agents = it.context.agents
            await agents.receive(Hello("node-0", "1", "", Inventory("node-0", (WHOLE, CUT))))
            uses = tuple(PartitionUse(part.id, 100 * part.index, part.index) for part in PARTS)
            samples = (
                GpuSample("gpu-0", Telemetry(95, 91_507, power_w=700, temperature_c=61)),
                GpuSample("gpu-1", Telemetry(50, 2_800, power_w=400, temperature_c=55), partitions=uses),
            )
            await agents.receive(Sample("node-0", 1, 0.0, samples))
            await until(lambda: "gpu-1-p0" in it.loop.state.nodes.column[0], "the partitions to be known")
            await it.context.series.sample(it.cluster.now_s())
            found = [
                await last(it, "gpu", measure, "node-0/gpu-0")
                for measure in ("utilisation_percent", "memory_used_mib", "power_w", "temperature_c")
            ]
            assert found == [95, 91_507, 700, 61]
            power = [await last(it, "gpu", "power_w", f"node-0/{part.id}") for part in PARTS]
            assert power == [400] + [None] * 7
            memory = [await last(it, "gpu", "memory_used_mib", f"node-0/{part.id}") for part in PARTS]
            assert memory == [100 * at for at in range(8)]

    run(story())


def test_a_silent_agent_leaves_a_gap_and_no_stale_numbers(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            agents = it.context.agents
            await agents.receive(Hello("node-0", "1", "", Inventory("node-0", (WHOLE,))))
            await agents.receive(Sample("node-0", 1, 0.0, (GpuSample("gpu-0", Telemetry(95, power_w=700)),)))
            agent = agents.of("node-0")
            assert agent is not None
            now_s = it.cluster.now_s() // 10 * 10
            for at, is_lost in enumerate((False, True, False)):
                agent.is_lost = is_lost
                await it.context.series.sample(now_s + 10 * at)
            span = {"from": now_s, "to": now_s + 30}
            assert await values(it, "gpu", "power_w", "node-0/gpu-0", **span) == [700, None, 700]

    run(story())


def test_kaiwo_records_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.context.series.sample(it.cluster.now_s())
            await it.submit("job", gpus=1, simulate="1h")
            await it.until_state("job", "running")
            await it.context.series.sample(it.cluster.now_s() + 60)
            now_s = it.cluster.now_s() + 60
            span = {"from": now_s - 30, "to": now_s + 60, "points": 1}
            assert await values(it, "scheduler", "starts", "scheduler", **span) == [1]
            assert (await values(it, "scheduler", "cycles", "scheduler", **span))[0]
            memory = (await values(it, "process", "memory_mib", "kaiwo", **span))[0]
            assert memory is not None
            assert 20 < memory < 4000

    run(story())


def test_samples_are_taken_without_being_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        import asyncio

        async with world(tmp_path, nodes=1) as it:
            for _ in range(200):
                if (await it.get("/series/subjects", kind="node")).status_code == 200:
                    names = (await it.get("/series/subjects", kind="node")).json()["names"]
                    if names:
                        break
                await asyncio.sleep(0.1)
            assert names == ["node-0"]

    run(story())


def test_a_file_that_breaks_while_kaiwo_runs_is_set_aside_and_recording_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            now_s = it.cluster.now_s()
            for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (tmp_path / name).unlink(missing_ok=True)
            it.context.series._close()
            (tmp_path / FILE).write_bytes(b"garbage" * 3000)
            await it.context.series.sample(now_s)  # finds the damage
            await it.context.series.sample(now_s)
            assert await last(it, "node", "gpu_used_milli", "node-0") == 0
            assert [path.name for path in tmp_path.glob(f"{FILE}.damaged-*")]

    run(story())


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"kind": "gpu", "measure": "power"}, 400, "did you mean"),
        ({"kind": "gpu", "measure": "power_w"}, 400, "name is missing"),
        ({"kind": "disk", "measure": "power_w"}, 400, "kind has no value 'disk'"),
        ({"kind": "node", "measure": "gpu_used_milli", "name": "nope"}, 404, "nothing is recorded of node 'nope'"),
        ({"kind": "cluster", "measure": "nodes", "from": 20, "to": 10}, 400, "must begin before it ends"),
        ({"kind": "cluster", "measure": "nodes", "points": 0}, 400, "points must be a whole number from 1"),
    ],
)
def test_a_question_without_an_answer_gets_a_sentence(
    tmp_path: Path, query: dict[str, Any], status: int, words: str
) -> None:
    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.context.series.sample(it.cluster.now_s())
            answer = await it.get("/series", **query)
            assert answer.status_code == status
            assert words in answer.text

    run(story())


def test_no_question_takes_the_memory_or_the_threads_of_others(tmp_path: Path) -> None:
    """A range from 1970 into the far future had 300 million steps for each name: 2.4 GB."""

    async def story() -> None:
        async with world(tmp_path, nodes=1) as it:
            await it.context.series.sample(it.cluster.now_s())
            asked = {"kind": "cluster", "measure": "gpu_used_milli"}
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for span in ({"from": 0, "to": 2**40}, {"last": 2**40, "points": 5000}, {"to": 2**40, "last": 1}):
                found = await it.get("/series", **asked, **span)
                assert found.status_code in (200, 400), found.json()
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "KiB"
            names = [f"u{at}" for at in range(21)]
            many = await it.get("/series", kind="user", measure="running", name=names, points=5000)
            assert many.status_code == 400
            assert "21 names with 5,000 points are more than 100,000 values" in many.json()["message"]
            assert (await it.get("/series", **asked, **{"from": 1, "to": 2})).status_code in (200, 400)

    run(story())
