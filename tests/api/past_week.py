"""A week on a virtual clock: work of ada is evicted twice for others, fails in its third attempt, a week goes by."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from kaiwo.clusters.local.clock import ticks
from kaiwo.devices.agent_messages import GpuSample, Hello, Sample
from kaiwo.devices.inventory import Inventory, PhysicalGpu, Telemetry
from tests.api.world import World, world
from tests.waiting import PATIENCE_S, until

MINUTE, HOUR, WEEK = 60, 3600, 7 * 86_400
GPUS = tuple(PhysicalGpu(f"gpu-{at}", "amd", "MI300X", order=at, memory_mib=196_608) for at in range(8))
# It ends when the file is there; each attempt says which one it is.
SCRIPT = """
echo attempt $(($(cat {home}/attempts 2>/dev/null || echo 0) + 1)) | tee {home}/told
cut -d' ' -f2 {home}/told > {home}/attempts
while [ ! -e {home}/enough ]; do sleep 0.05; done
echo giving up; exit 3
"""


class VirtualClock:
    """It goes on by itself, and jumps when a test says so."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def ticks(self) -> float:
        return ticks() + self.ahead_s

    def wall(self) -> float:
        return time.time() + self.ahead_s

    async def jump(self, it: World, seconds: int) -> None:
        """The cluster's clock is so much later then, and everything until then is recorded."""
        await it.context.past.flush()
        at_s = it.cluster.now_s() + seconds
        self.ahead_s += seconds
        await it.cluster._commits.write(
            it.cluster._store_time
        )  # as it does every two seconds: the clock never passes what is stored
        await until(lambda: it.cluster.now_s() >= at_s, "the clock to jump")


@contextlib.asynccontextmanager
async def week_later(home: Path) -> AsyncIterator[World]:
    """Kaiwo, a week after `train` ended. Its GPUs were 90 % busy in the first hour, and 30 % in the second."""
    clock = VirtualClock()
    async with world(home, nodes=1, ticks=clock.ticks, wall=clock.wall) as it:
        await it.context.agents.receive(Hello("node-0", "1", "", Inventory("node-0", GPUS)))
        command = ["sh", "-c", SCRIPT.format(home=home)]
        await it.submit("train", gpus=8, command=command, user="ada", priority=-5, retries=0)
        await it.until_state("train", "running")
        await measured_hour(it, clock, busy=90)
        for name, user, busy in (("urgent", "bob", 30), ("rush", "carol", 0)):
            await it.submit(name, gpus=8, command=["sleep", "1000"], user=user, priority=10)
            await it.until_state(name, "running")
            await clock.jump(it, 30 * MINUTE)
            await it.delete(f"/workloads/default/{name}")
            await it.until_state("train", "running")
            if busy:
                await measured_hour(it, clock, busy)
        agent = it.context.agents.of("node-0")
        assert agent is not None
        agent.is_lost = True  # nobody measures the third attempt; agents live by a clock that does not jump
        await clock.jump(it, 10 * MINUTE)
        (home / "enough").touch()
        await it.until_state("train", "failed")
        await clock.jump(it, WEEK + HOUR)
        await it.context.series.sample(it.cluster.now_s())
        yield it


async def measured_hour(it: World, clock: VirtualClock, busy: int) -> None:
    """An hour, of which an agent tells how busy the GPUs are."""
    sequence = int(it.cluster.now_s())
    await it.context.series.sample(it.cluster.now_s())
    for step in range(12):
        samples = tuple(GpuSample(gpu.id, Telemetry(busy, 1000)) for gpu in GPUS)
        await it.context.agents.receive(Sample("node-0", sequence + step, 0.0, samples))
        await clock.jump(it, 5 * MINUTE)
        await it.context.series.sample(it.cluster.now_s())
    agent = it.context.agents.of("node-0")
    assert agent is not None
    agent.sample = None


@contextlib.contextmanager
def served_week(home: Path) -> Iterator[None]:
    """The same on a thread of its own, for tests that type commands or look at the page."""
    is_up, is_over = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def serve() -> None:
        async with week_later(home):
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failures.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert is_up.wait(3 * PATIENCE_S)
        assert not failures, failures
        yield
    finally:
        is_over.set()
        thread.join()
