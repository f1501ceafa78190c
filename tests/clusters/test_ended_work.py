"""Ended work is kept for a time and up to a size, with where it ran, how it ended and its logs."""

from pathlib import Path

import pytest

from kaiwo.clusters.embedded.ended_work import RECORD_BYTES, Retention
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.simulated import SimulatedCluster
from kaiwo.manifests.values.names import ARRAY_LABEL
from kaiwo.model.errors import NotFoundError
from kaiwo.model.plan import Eviction, EvictionCause, Plan
from kaiwo.model.workload import Workload
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import Kind, log_path, opened, some_nodes, start_of, work
from tests.waiting import run, until

DAY_S = 86_400


def echo(text: str) -> Program:
    return Program(command=("echo", text))


def names(cluster: SimulatedCluster | LocalCluster) -> list[str]:
    return sorted(record.workload.name.removeprefix("default/") for record in cluster.records())


def tasks(array: str, count: int) -> list[tuple[Workload, Program]]:
    return [(work(f"{array}-{index}", labels={ARRAY_LABEL: array}), Program()) for index in range(count)]


async def run_to_end(cluster: LocalCluster, name: str, program: Program) -> None:
    await cluster.work.submit([(work(name), program)])
    await cluster.apply(Plan(starts=(start_of(name),)))
    await until(lambda: cluster.record(f"default/{name}").state.is_over)


def test_cancelling_an_array_of_6000_deletes_nobodys_logs(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await run_to_end(cluster, "mine", echo("my result"))
        sweep = tasks("sweep", 6000)
        await cluster.work.submit(sweep)
        assert not any(await cluster.work.change_many("cancel", [workload.name for workload, _ in sweep]))
        await cluster.transact(lambda transaction: None)
        assert cluster.record("default/mine").state is WorkloadState.SUCCEEDED
        assert Path(log_path(cluster, "default/mine")).read_text() == "my result\n"
        assert len(cluster.records()) == 6001
        await cluster.close()

    run(test())


def test_ended_work_is_forgotten_after_its_time() -> None:
    async def test() -> None:
        cluster = SimulatedCluster(some_nodes(1), start_s=1_000_000, retention=Retention(keep_s=30 * DAY_S))
        for day in range(3):
            await cluster.work.submit([(work(f"day-{day}"), Program())])
            await cluster.work.change("cancel", f"default/day-{day}")
            cluster.advance(DAY_S)
        cluster.advance(28 * DAY_S)  # the first is 31 days old, the last 29
        await cluster.transact(lambda transaction: None)
        assert names(cluster) == ["day-2"]

    run(test())


def test_an_array_is_one_record_and_goes_when_its_last_task_is_old() -> None:
    async def test() -> None:
        cluster = SimulatedCluster(some_nodes(1), start_s=1_000_000, retention=Retention(keep_s=10 * DAY_S))
        await cluster.work.submit(tasks("sweep", 3))
        await cluster.work.change("cancel", "default/sweep-0")
        cluster.advance(20 * DAY_S)
        await cluster.transact(lambda transaction: None)
        assert names(cluster) == ["sweep-0", "sweep-1", "sweep-2"]  # two of its tasks still wait
        await cluster.work.change_many("cancel", ["default/sweep-1", "default/sweep-2"])
        cluster.advance(9 * DAY_S)
        await cluster.transact(lambda transaction: None)
        assert len(names(cluster)) == 3
        cluster.advance(2 * DAY_S)
        await cluster.transact(lambda transaction: None)
        assert names(cluster) == []

    run(test())


def test_beyond_the_size_the_oldest_is_forgotten_first(tmp_path: Path) -> None:
    async def test() -> None:
        big = Program(command=("sh", "-c", "head -c 1000000 /dev/zero"))
        retention = Retention(keep_bytes=2_500_000 + 10 * RECORD_BYTES)
        cluster = LocalCluster(tmp_path, some_nodes(1), retention=retention)
        for name in ("first", "second", "third"):
            await run_to_end(cluster, name, big)
        cluster._next_forget_s = 0
        await until(lambda: names(cluster) == ["second", "third"])
        await until(lambda: len(list((tmp_path / "runs").iterdir())) == 2)
        assert Path(log_path(cluster, "default/third")).stat().st_size == 1_000_000
        await cluster.close()

    run(test())


def test_a_name_that_is_used_again_keeps_its_earlier_runs(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1))
        await run_to_end(first, "train", echo("one"))
        await run_to_end(first, "train", echo("two"))
        await first.close()
        cluster = LocalCluster(tmp_path)  # everything is stored
        await run_to_end(cluster, "train", echo("three"))
        assert cluster.submissions_of("default/train") == [1, 2, 3]
        for number, text in enumerate(("one", "two", "three"), start=1):
            (log,) = cluster.logs_of("default/train", submission=number)
            assert Path(log.path).read_text() == f"{text}\n"
            assert cluster.submission("default/train", number).state is WorkloadState.SUCCEEDED
        with pytest.raises(NotFoundError, match="no submission 7, or it was forgotten; there are: 1, 2, 3"):
            cluster.submission("default/train", 7)
        await cluster.work.remove((), ("default/train",))
        await until(lambda: not list((tmp_path / "runs").iterdir()))
        await run_to_end(cluster, "train", echo("new"))
        assert cluster.submissions_of("default/train") == [1]
        await cluster.close()

    run(test())


def test_ended_work_knows_where_it_ran_and_who_evicted_it(kind: Kind) -> None:
    async def test() -> None:
        async with opened(kind) as scene:
            cluster = scene.cluster
            await scene.submit("low", "urgent", "next")
            await cluster.apply(Plan(starts=(start_of("low"),)))
            eviction = Eviction("default/low", "main-0", EvictionCause.PREEMPT, "default/urgent")
            await cluster.apply(Plan(evictions=(eviction,)))
            await kind.let_pass(cluster, lambda: cluster.record("default/low").state is WorkloadState.WAITING)
            await cluster.apply(Plan(starts=(start_of("low", node="node-2"),)))
            await cluster.nodes.drain("node-2", who="root")
            await kind.let_pass(cluster, lambda: cluster.record("default/low").state is WorkloadState.WAITING)
            await cluster.apply(Plan(starts=(start_of("low", node="node-1"),)))
            await cluster.work.change("cancel", "default/low", "ann")
            await kind.let_pass(cluster, lambda: cluster.record("default/low").state.is_over)
            attempts = cluster.attempts_of("default/low")
            assert [(each.number, each.pods[0].node, each.pods[0].devices[0].gpu) for each in attempts] == [
                (1, "node-1", "gpu-0"),
                (2, "node-2", "gpu-0"),
                (3, "node-1", "gpu-0"),
            ]
            assert [each.message for each in attempts] == [
                "stopped by the scheduler (preempt for default/urgent, queue default)",
                "its node node-2 is drained by root",
                "cancelled by ann",
            ]
            assert all(each.ended_s for each in attempts)

    run(test())
