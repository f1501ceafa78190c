"""A running Kaiwo follows the files of its topologies: no restart, and no damage from a damaged file."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kaiwo.app.options import UpOptions
from kaiwo.app.up import running
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import work
from tests.runtime.topology.test_topology_reader import CONF, write
from tests.waiting import PATIENCE_S, run

NODES = CONF.replace("n[1-2]", "node-[1-2]").replace("n[3-4]", "node-[3-4]")


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


def test_a_running_kaiwo_follows_its_files(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "topology.conf"
        path.write_text(NODES)
        options = UpOptions(home=str(tmp_path / "home"), port=0, nodes=4, topology=(f"slurm={path}",))
        async with running(options) as kaiwo:
            kaiwo.context.topology.every_s = 0.05

            def leaf_of(node: str) -> str:
                tables, row = kaiwo.loop.state.nodes.topologies, kaiwo.loop.state.nodes.row[node]
                level = tables.level("leaf", "slurm")
                return level.names[level.domain_of_node[row]] if level is not None else ""

            await until(lambda: leaf_of("node-2") == "leaf1")
            write(path, NODES.replace("node-[1-2]", "node-1").replace("node-[3-4]", "node-[2-4]"))
            await until(lambda: leaf_of("node-2") == "leaf2")
            write(path, "SwitchName=leaf1 Nodes=node-[1-")
            await until(lambda: kaiwo.context.topology.faults)
            assert "line 1: 'node-[1-' has a bracket that is not closed" in kaiwo.context.topology.faults["slurm"]
            assert leaf_of("node-2") == "leaf2"
            kinds = [type(event).__name__ for event in kaiwo.loop.state.events()]
            assert "TopologyChanged" in kinds  # so the journal's base has it

    run(test())


CLOSED = """
nodes:
  - {name: node, count: 4, gpus: 8, model: MI300X}
topology:
  - {name: fabric, slurm: %s, access: [{domains: [leaf1, leaf2], queues: []}]}
"""


@pytest.mark.parametrize("is_damaged", [False, True])
def test_no_cycle_after_a_restart_forgets_which_domains_are_closed(tmp_path: Path, is_damaged: bool) -> None:
    """The first cycle came before the network was read, and started what waited."""

    async def test() -> None:
        path, cluster = tmp_path / "topology.conf", tmp_path / "cluster.yaml"
        path.write_text(NODES)
        cluster.write_text(CLOSED % path)
        options = UpOptions(home=str(tmp_path / "home"), port=0, cluster_file=str(cluster))
        for attempt in range(3):
            if attempt and is_damaged:
                write(path, "garbage\n" * 1_000)
            async with running(options) as kaiwo:
                if not attempt:
                    await kaiwo.cluster.work.submit([(work("a"), Program(simulated_s=3600))])
                    cluster.write_text(cluster.read_text().replace("MI300X}", "MI300X, labels: {a: b}}"))  # all new
                reader = kaiwo.context.topology
                await until(lambda: "fabric" in kaiwo.loop.state.nodes.topologies.by_name)
                assert bool(reader.faults) is bool(attempt and is_damaged)
                await until(lambda: kaiwo.loop.last_cycle is not None)
                assert kaiwo.cluster.record("default/a").state is WorkloadState.WAITING

    run(test())
