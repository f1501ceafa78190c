"""Nodes of `kaiwo up` and of the simulated cluster can fail: only lost pods stop, and what is remembered is stored."""

import asyncio

import pytest

from kaiwo.clusters.protocol import NodeFault
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.model.errors import NotFoundError
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, Workload
from kaiwo.model.workload_record import Program
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.waiting import run


def nodes(count: int, gpus: int = 2) -> list[Node]:
    devices = tuple(Gpu(f"gpu-{at}", "MI300X", 196_608) for at in range(gpus))
    return [Node(f"n{at}", 64_000, 262_144, gpus=devices) for at in range(count)]


class Simulation:
    """A simulated cluster, and a scheduler that follows it."""

    def __init__(self, count: int) -> None:
        self.cluster = SimulatedCluster(nodes(count), start_s=1000)
        self.runner = CycleRunner(None)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for batch in self.cluster.events():
            self.runner.state.patch(batch)

    async def settle(self) -> None:
        for _ in range(8):
            for _ in range(10):  # until the reader has every batch: nothing here waits for anything else
                await asyncio.sleep(0)
            decision = self.runner.cycle(self.cluster.now_s())
            if decision is not None:
                await self.cluster.apply(decision.plan)


def where(simulation: Simulation, name: str = "default/gang") -> dict[str, str]:
    return {pod: found.pod.node for pod, found in simulation.cluster.state.pods_of.get(name, {}).items()}


async def running_gang(count: int, pods: int) -> Simulation:
    simulation = Simulation(count)
    role = Role(Request(gpus=2, cpu_milli=100), count=pods)
    await simulation.cluster.work.put((), [(Workload("default/gang", (role,)), Program(simulated_s=9_999))])
    await simulation.settle()
    assert len(where(simulation)) == pods
    return simulation


def test_only_the_lost_pod_of_a_rigid_gang_stops() -> None:
    async def test() -> None:
        simulation = await running_gang(4, 3)
        before = where(simulation)
        await simulation.cluster.nodes.fail(before["main-1"], NodeFault("power"))
        await simulation.settle()
        after = where(simulation)
        assert after["main-1"] not in (before["main-1"], "")
        assert (after["main-0"], after["main-2"]) == (before["main-0"], before["main-2"])
        lost = simulation.cluster.state.nodes[before["main-1"]]
        assert (lost.ready, lost.reason, lost.failure.bad_for) == (False, "power", ("default/gang",))
        assert simulation.cluster.record("default/gang").attempt == 1, "the gang itself goes on"

    run(test())


def test_pods_of_an_unreachable_node_stay() -> None:
    async def test() -> None:
        simulation = await running_gang(4, 2)
        before = where(simulation)
        await simulation.cluster.nodes.fail(before["main-0"], NodeFault(is_unreachable=True))
        await simulation.settle()
        assert where(simulation) == before
        await simulation.cluster.nodes.restore(before["main-0"])
        await simulation.settle()
        assert where(simulation) == before
        assert simulation.cluster.state.nodes[before["main-0"]].ready

    run(test())


def test_a_broken_gpu_moves_its_pod_and_works_again_after_restore() -> None:
    async def test() -> None:
        simulation = await running_gang(2, 1)
        [node] = where(simulation).values()
        await simulation.cluster.nodes.fail(node, NodeFault("ECC", gpu="gpu-1"))
        await simulation.settle()
        assert where(simulation) == {"main-0": ({"n0", "n1"} - {node}).pop()}
        broken = simulation.cluster.state.nodes[node].gpus[1]
        assert (broken.healthy, broken.reason, broken.failed_s) == (False, "ECC", 1000)
        await simulation.cluster.nodes.restore(node)
        assert simulation.cluster.state.nodes[node].gpus[1].healthy

    run(test())


def test_an_unknown_gpu_is_named() -> None:
    async def test() -> None:
        simulation = await running_gang(2, 1)
        with pytest.raises(NotFoundError, match="node n0 has no GPU gpu-9; kaiwo gpus --node n0 lists them"):
            await simulation.cluster.nodes.fail("n0", NodeFault(gpu="gpu-9"))

    run(test())
