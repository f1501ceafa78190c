"""What agents measure about GPUs reaches the scheduler: `load-balanced` work goes to the least busy ones."""

from pathlib import Path

from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry
from kaiwo.runtime.loop.replay import replay
from kaiwo.runtime.recording import measured_loads
from tests.api.world import World, world
from tests.waiting import run, until

GPUS = tuple(PhysicalGpu(f"gpu-{at}", "amd", "MI300X", order=at, memory_mib=196_608) for at in range(2))


async def sample(kaiwo: World, node: str, number: int, *busy: int | None) -> None:
    gpus = (GpuSample(f"gpu-{at}", Telemetry(utilisation_percent=percent)) for at, percent in enumerate(busy))
    await kaiwo.context.agents.receive(Sample(node, number, float(number), tuple(gpus)))


def loads_of(kaiwo: World, node: str) -> dict[str, int]:
    return kaiwo.loop.state.gpu_loads.get(node, {})


def test_work_that_is_balanced_goes_to_the_gpu_that_is_least_busy(tmp_path: Path) -> None:
    async def work() -> int:
        async with world(tmp_path, nodes=2) as kaiwo:
            for at, busy in enumerate(((90, 80), (70, 20))):
                await kaiwo.context.agents.receive(Hello(f"node-{at}", "1", "boot", Inventory(f"node-{at}", GPUS)))
                await sample(kaiwo, f"node-{at}", 1, *busy)
            await until(lambda: loads_of(kaiwo, "node-1") == {"gpu-0": 700, "gpu-1": 200})
            await kaiwo.submit("web", gpuFraction="0.5", strategy="load-balanced", simulate="1h")
            await kaiwo.until_state("web", "running")
            pod = kaiwo.loop.state.pods["default/web"]["main-0"]
            assert (pod.node, [share.gpu for share in pod.devices]) == ("node-1", ["gpu-1"])
            assert kaiwo.loop.last_cycle is not None
            return kaiwo.loop.last_cycle.number

    number = run(work())
    result = replay(str(tmp_path), number)
    assert result.now == result.then


def test_loads_are_a_mean_and_small_changes_are_not_sent(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            own = measured_loads.MeasuredLoads(kaiwo.context.agents, kaiwo.loop)
            await kaiwo.context.agents.receive(Hello("node-0", "1", "boot", Inventory("node-0", GPUS)))
            await sample(kaiwo, "node-0", 1, 40, None)
            assert own.changes() == {"node-0": {"gpu-0": 400}}, "what nobody measures is left out"
            await sample(kaiwo, "node-0", 2, 50, None)
            assert all(own.changes() == {} for _ in range(measured_loads.LOOKS)), "450 is hardly more than 400"
            for number in range(3, 20):
                await sample(kaiwo, "node-0", number, 100, None)
                sent = own.changes()
                if sent:
                    break
            assert 525 <= sent["node-0"]["gpu-0"] < 1000, "a mean, so one sample changes little"
            await sample(kaiwo, "node-0", 20, None, None)
            assert own.changes() == {"node-0": {}}
            await sample(kaiwo, "node-0", 21, 10, 300)
            assert own.changes() == {"node-0": {"gpu-0": 100}}, "300 % is impossible, and dropped"
            agent = kaiwo.context.agents.of("node-0")
            assert agent is not None
            agent.is_lost = True
            assert own.changes() == {"node-0": {}}

    run(work())
