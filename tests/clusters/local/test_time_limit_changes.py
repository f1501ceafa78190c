"""The time limit of a running process is raised, lowered and removed, also across a crash of Kaiwo."""

import asyncio
import time
from pathlib import Path

from msgspec.structs import replace

from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.run_folder import RunFolder
from kaiwo.model.errors import KaiwoError
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import some_nodes, start_of, work
from tests.waiting import run, until

NAME = "default/a"


def real_time(home: Path) -> LocalCluster:
    return LocalCluster(home, some_nodes(1), speed=1.0, grace_s=1.0)


async def running(cluster: LocalCluster, limit_s: int, command: str) -> None:
    await cluster.start()
    program = Program(command=("sh", "-c", command))
    await cluster.work.submit([(work("a", time_limit_s=limit_s), program)])
    await cluster.apply(Plan(starts=(start_of("a"),)))
    await until_state(cluster, WorkloadState.RUNNING)


async def set_limit(cluster: LocalCluster, limit_s: int) -> None:
    (result,) = await cluster.work.set_many([NAME], lambda workload: replace(workload, time_limit_s=limit_s))
    assert not isinstance(result, KaiwoError)


async def until_state(cluster: LocalCluster, state: WorkloadState) -> None:
    await until(lambda: cluster.record(NAME).state is state, f"{state}")


def test_a_process_that_was_given_more_time_finishes(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = real_time(tmp_path)
        await running(cluster, 1, "sleep 2")
        await set_limit(cluster, 600)
        await until_state(cluster, WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())


def test_a_process_whose_limit_was_removed_finishes(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = real_time(tmp_path)
        await running(cluster, 1, "sleep 2")
        await set_limit(cluster, 0)
        await until_state(cluster, WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())


def test_a_process_is_stopped_at_a_lowered_limit(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = real_time(tmp_path)
        began = time.monotonic()
        await running(cluster, 0, "sleep 600")
        await set_limit(cluster, 1)
        await until_state(cluster, WorkloadState.FAILED)
        assert cluster.record(NAME).message == "stopped at its time limit of 1 s"
        assert time.monotonic() - began >= 1
        await cluster.close()

    run(test())


def test_a_limit_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = real_time(tmp_path)
        await running(cluster, 600, "sleep 600")
        await asyncio.sleep(1.1)
        changed = time.monotonic()
        await set_limit(cluster, 1)
        await until_state(cluster, WorkloadState.FAILED)
        assert time.monotonic() - changed < 5
        await cluster.close()

    run(test())


def test_a_limit_that_was_stored_before_a_crash_holds_after_it(tmp_path: Path) -> None:
    """Kaiwo dies after the change is stored and before the supervisor knows it."""

    async def test() -> None:
        first = real_time(tmp_path)
        await running(first, 600, "sleep 600")
        first._processes.set_time_limit = lambda run_id, limit_s: None  # type: ignore[method-assign]
        await set_limit(first, 1)
        await first.close()
        second = real_time(tmp_path)
        await second.start()
        await until_state(second, WorkloadState.FAILED)
        assert second.record(NAME).message == "stopped at its time limit of 1 s"
        await second.close()

    run(test())


def test_a_limit_that_was_written_but_not_signalled_is_read_when_the_time_is_up(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = real_time(tmp_path)
        await running(cluster, 1, "sleep 3")
        (run_id,) = cluster.state.runs
        assert RunFolder(tmp_path / "runs" / run_id).set_time_limit(600)
        await until_state(cluster, WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())


def test_a_supervisor_of_an_older_kaiwo_is_not_signalled(tmp_path: Path) -> None:
    """It would not know the signal, and end."""

    async def test() -> None:
        cluster = real_time(tmp_path)
        await running(cluster, 600, "sleep 2")
        (run_id,) = cluster.state.runs
        record = tmp_path / "runs" / run_id / "start.json"
        record.write_text(record.read_text().replace('"takes_limit": true', '"takes_limit": false'))
        await set_limit(cluster, 500)
        assert not (record.parent / "limit.json").exists()
        await until_state(cluster, WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())
