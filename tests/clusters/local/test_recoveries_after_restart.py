"""Recoveries that are under way go on after a restart of Kaiwo."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from kaiwo.app.options import UpOptions
from kaiwo.app.up import running
from kaiwo.clusters.protocol import NodeFault
from kaiwo.model.events import RecoveryChanged
from kaiwo.model.plan import Plan
from kaiwo.model.recovery import FailureKind, Recovery, RecoveryWay
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import Program
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kinds import full, start_of, work
from tests.clusters.local.restarts import first_events, opened
from tests.waiting import PATIENCE_S, run

SPARE = """
nodes:
  - {name: node, count: 3, gpus: 8, model: MI300X, labels: {topology.kaiwo.ai/leaf: one}}
  - {name: spare, gpus: 8, model: MI300X, labels: {topology.kaiwo.ai/leaf: one}%s}
topology:
  - labels: [topology.kaiwo.ai/leaf]
"""
TAINT = ", taints: [{key: kaiwo.ai/spare, effect: NoSchedule}]"


def recovery(name: str, way: RecoveryWay = RecoveryWay.WAIT) -> Recovery:
    return Recovery(full(name), 50, FailureKind.NODE, ("node node-1",), way, ("main-0",), 2, moved=("main-1",))


async def told(home: Path) -> list[Recovery]:
    """The recoveries in the first events of a new process."""
    return [event.recovery for event in await first_events(home) if isinstance(event, RecoveryChanged)]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


def test_a_new_process_is_told_what_recovers(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        await cluster.work.submit([(work("train", pods=2), Program(simulated_s=10**6))])
        await cluster.apply(Plan(starts=(start_of("train"),), recoveries=(recovery("train", RecoveryWay.FENCE),)))
        await cluster.apply(Plan(recoveries=(recovery("train"),)))
        await cluster.close()
        assert await told(tmp_path) == [recovery("train")]

    run(test())


def test_a_recovery_ends_with_its_plan_or_its_workload(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = opened(tmp_path)
        names = ("whole", "cancelled", "deleted", "stays")
        await cluster.work.submit([(work(name, pods=2), Program(simulated_s=10**6)) for name in names])
        await cluster.apply(Plan(recoveries=tuple(recovery(name) for name in names)))
        await cluster.apply(Plan(recovered=(full("whole"),)))
        await cluster.work.change("cancel", full("cancelled"))
        await cluster.work.remove([], [full("deleted")])
        await cluster.apply(Plan(recoveries=(recovery("cancelled"), recovery("nobody"))))  # decided before it was heard
        await cluster.close()
        assert await told(tmp_path) == [recovery("stays")]

    run(test())


def test_a_gang_that_waits_for_room_moves_to_another_leaf_after_a_restart(tmp_path: Path) -> None:
    """Its leaf has no room, and the other one is free only later: the new process still searches for a swap."""

    async def test() -> None:
        options = UpOptions(home=str(tmp_path), port=0, nodes=8)
        gang = replace(work("gang", pods=4, request=Request(gpus=8)), required_level="leaf")
        async with running(options) as kaiwo:
            jobs = kaiwo.cluster.work
            await until(lambda: kaiwo.loop.state.nodes.topologies.by_name)
            await jobs.submit([(gang, Program(simulated_s=10**6))])
            await until(lambda: up(kaiwo.loop.state, "gang") == 4)
            other = replace(work("other", pods=4, request=Request(gpus=8)), preemptible=False)
            await jobs.submit([(other, Program(simulated_s=10**6))])
            await until(lambda: up(kaiwo.loop.state, "other") == 4)
            failed = next(pod.node for pod in kaiwo.loop.state.pods[full("gang")].values())
            await kaiwo.cluster.nodes.fail(failed, NodeFault("power"))
            await until(lambda: up(kaiwo.loop.state, "gang") == 3 and way_of(kaiwo.loop.state) is RecoveryWay.WAIT)
        async with running(options) as kaiwo:
            await until(lambda: kaiwo.loop.last_cycle is not None and kaiwo.loop.state.nodes.topologies.by_name)
            assert way_of(kaiwo.loop.state) is RecoveryWay.WAIT
            assert up(kaiwo.loop.state, "gang") == 3
            await kaiwo.cluster.work.change("cancel", full("other"))
            await until(lambda: up(kaiwo.loop.state, "gang") == 4 and not kaiwo.loop.state.failures.recoveries)
            [past] = kaiwo.loop.recoveries.past
            assert (past.recovery.workload, past.recovery.way) == (full("gang"), RecoveryWay.MOVE)

    run(test())


def test_a_spare_node_is_open_to_what_lost_its_place_before_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        cluster_file, home = tmp_path / "cluster.yaml", str(tmp_path / "home")
        cluster_file.write_text(SPARE.replace("  - {name: spare", "#") % "")
        options = UpOptions(home=home, port=0, cluster_file=str(cluster_file))
        gang = replace(work("gang", pods=3, request=Request(gpus=8)), required_level="leaf")
        async with running(options) as kaiwo:
            await until(lambda: kaiwo.loop.state.nodes.topologies.by_name)
            await kaiwo.cluster.work.submit([(gang, Program(simulated_s=10**6))])
            await until(lambda: up(kaiwo.loop.state, "gang") == 3)
            await kaiwo.cluster.nodes.fail("node-2", NodeFault("power"))
            await until(lambda: up(kaiwo.loop.state, "gang") == 2 and way_of(kaiwo.loop.state) is RecoveryWay.WAIT)
        cluster_file.write_text(SPARE % TAINT)
        async with running(options) as kaiwo:
            await until(lambda: up(kaiwo.loop.state, "gang") == 3)
            assert {pod.node for pod in kaiwo.loop.state.pods[full("gang")].values()} == {"node-1", "node-3", "spare"}

    run(test())


def up(state: ClusterState, name: str) -> int:
    """How many of its pods run."""
    return sum(pod.phase is Phase.RUNNING for pod in state.pods.get(full(name), {}).values())


def way_of(state: ClusterState) -> RecoveryWay | None:
    found = state.failures.recoveries.get(full("gang"))
    return None if found is None else found.way
