"""A local cluster after a restart: what ran is found again, what ended is told, nothing runs twice."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.processes import is_alive
from kaiwo.clusters.local.run_folder import RunFolder
from kaiwo.model.errors import ClusterError
from kaiwo.model.plan import Plan, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import log_path, some_nodes, start_of, whole, work
from tests.waiting import run, until


@contextlib.asynccontextmanager
async def kaiwo(home: Path, **options: object) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(home, None if (home / "state.db").exists() else some_nodes(2), grace_s=2.0, **options)  # type: ignore[arg-type]
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


def shell(script: str, retries: int = 0) -> Program:
    return Program(command=("sh", "-c", script), retries=retries)


async def begin(cluster: LocalCluster, name: str, program: Program, *starts: Start, **fields: object) -> None:
    await cluster.work.submit([(work(name, **fields), program)])  # type: ignore[arg-type]
    await cluster.apply(Plan(starts=starts or (start_of(name),)))


async def until_state(cluster: LocalCluster, name: str, *states: WorkloadState) -> None:
    await until(lambda: cluster.record(f"default/{name}").state in states, f"{name} to be {states}")


def folder_of(cluster: LocalCluster, name: str) -> RunFolder:
    run_id = cluster.state.pods[f"default/{name}", "main-0"].run.id
    return RunFolder(cluster.home.runs / run_id)


def test_a_running_process_is_adopted_and_its_end_is_heard(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("echo once; while [ ! -e ../go ]; do sleep 0.01; done; exit 4"))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            folder = folder_of(cluster, "a")
        async with kaiwo(tmp_path) as cluster:
            assert cluster.record("default/a").state is WorkloadState.RUNNING
            (folder.path / "go").touch()
            await until_state(cluster, "a", WorkloadState.FAILED)
            assert cluster.record("default/a").exit_code == 4
            assert folder.log.read_text() == "once\n"

    run(test())


def test_what_ended_meanwhile_is_told_at_the_next_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("sleep 0.2"))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            folder = folder_of(cluster, "a")
        await until(folder.exit_record)
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.SUCCEEDED)

    run(test())


def test_a_lost_run_counts_as_a_failed_attempt(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("sleep 60", retries=1))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            start = folder_of(cluster, "a").start_record()
            assert start is not None
        os.kill(start.supervisor, signal.SIGKILL)
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.WAITING)
            assert "supervisor was killed" in cluster.record("default/a").message
            assert not is_alive(start.pid, start.ticks)
            assert cluster.state.pods == {}

    run(test())


def test_a_run_whose_folder_was_removed_is_not_begun_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("echo ran >> ../../../ran; sleep 60"))
            await until(lambda: (tmp_path / "ran").exists())
            await until_state(cluster, "a", WorkloadState.RUNNING)
            folder = folder_of(cluster, "a")
            start = folder.start_record()
            assert start is not None
        shutil.rmtree(folder.path)
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.FAILED)
            assert "removed" in cluster.record("default/a").message
            assert not is_alive(start.pid, start.ticks)
        assert (tmp_path / "ran").read_text() == "ran\n"

    run(test())


def test_a_supervisor_killed_under_kaiwos_eyes_is_noticed(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("sleep 60"))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            start = folder_of(cluster, "a").start_record()
            assert start is not None
            os.kill(start.supervisor, signal.SIGKILL)
            await until_state(cluster, "a", WorkloadState.FAILED)
            assert not is_alive(start.pid, start.ticks)

    run(test())


def test_what_was_decided_but_never_began_begins_after_the_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            cluster._processes.run = lambda *_, **__: None  # type: ignore[method-assign]  # killed before the spawn
            await begin(cluster, "a", shell("echo ran"))
            assert cluster.record("default/a").state is WorkloadState.STARTING
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.SUCCEEDED)
            assert cluster.record("default/a").attempt == 1
            assert Path(log_path(cluster, "default/a")).read_text() == "ran\n"

    run(test())


def test_a_cancel_survives_a_crash_before_its_signals(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("sleep 60"))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            start = folder_of(cluster, "a").start_record()
            assert start is not None
            cluster._processes.stop = lambda *_, **__: None  # type: ignore[method-assign]
            await cluster.work.change("cancel", "default/a")
            assert cluster.record("default/a").state is WorkloadState.STOPPING
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.CANCELLED)
            assert not is_alive(start.pid, start.ticks)

    run(test())


def test_what_was_cancelled_before_it_began_never_begins(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            cluster._processes.run = lambda *_, **__: None  # type: ignore[method-assign]
            await begin(cluster, "a", shell("touch ../../../ran"))
            await cluster.work.change("cancel", "default/a")
        async with kaiwo(tmp_path) as cluster:
            await until_state(cluster, "a", WorkloadState.CANCELLED)
            assert not (tmp_path / "ran").exists()

    run(test())


def test_a_cancel_right_after_the_start_leaves_nothing_running(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            for index in range(8):
                await begin(cluster, f"a-{index}", shell("sleep 60"), start_of(f"a-{index}", devices=whole(index)))
                await asyncio.sleep(0.004 * index)
                await cluster.work.change("cancel", f"default/a-{index}")
            for index in range(8):
                await until_state(cluster, f"a-{index}", WorkloadState.CANCELLED)
            starts = [RunFolder(path).start_record() for path in cluster.home.runs.iterdir()]
            assert not any(is_alive(start.pid, start.ticks) for start in starts if start is not None)

    run(test())


def test_a_gang_of_processes_fails_as_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            script = "echo $KAIWO_POD_INDEX of $KAIWO_PODS; [ $KAIWO_POD_INDEX = 1 ] && exit 7; sleep 60"
            starts = [start_of("gang", f"main-{index}", devices=whole(index)) for index in range(3)]
            await begin(cluster, "gang", shell(script), *starts, pods=3)
            await until_state(cluster, "gang", WorkloadState.FAILED)
            record = cluster.record("default/gang")
            assert (record.exit_code, record.message) == (7, "pod main-1 ended with exit code 7")
            assert Path(log_path(cluster, "default/gang", "main-1")).read_text() == "1 of 3\n"
            assert cluster.state.pods == {}

    run(test())


def test_a_program_that_does_not_exist_fails_with_a_sentence(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", Program(command=("no-such-command",)))
            await until_state(cluster, "a", WorkloadState.FAILED)
            record = cluster.record("default/a")
            assert record.exit_code == 127
            assert record.message == "pod main-0: the command was not found"

    run(test())


def test_retries_run_in_fresh_folders_and_old_ones_are_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await cluster.work.submit([(work("a"), shell("echo $KAIWO_ATTEMPT; exit 1", retries=4))])
            for _ in range(5):
                await cluster.apply(Plan(starts=(start_of("a"),)))
                await until_state(cluster, "a", WorkloadState.WAITING, WorkloadState.FAILED)
            assert cluster.record("default/a").state is WorkloadState.FAILED
            assert Path(log_path(cluster, "default/a")).read_text() == "5\n"
            await until(lambda: len(list(cluster.home.runs.iterdir())) == 3)
            await cluster.work.forget_ended(["default/a"])
            await until(lambda: not list(cluster.home.runs.iterdir()))

    run(test())


def test_folders_of_forgotten_runs_go_at_the_next_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            stray = cluster.home.runs / "stray"
            (stray / "work").mkdir(parents=True)
        async with kaiwo(tmp_path):
            await until(lambda: not stray.exists())

    run(test())


def test_an_evicted_process_is_stopped_before_its_devices_are_free(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "a", shell("trap 'sleep 0.3; exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
            await until_state(cluster, "a", WorkloadState.RUNNING)
            await until(lambda: "ready" in folder_of(cluster, "a").log.read_text())
            await cluster.work.submit([(work("b"), Program())])
            await cluster.nodes.drain("node-1")
            await cluster.nodes.cordon("node-1", False)
            assert cluster.state.pods["default/a", "main-0"].pod.phase is Phase.RELEASING
            assert await cluster.apply(Plan(starts=(start_of("b"),))) == ()
            assert "gpu-0" in cluster.record("default/b").workload.not_before_why
            await until_state(cluster, "a", WorkloadState.WAITING)
            assert await cluster.apply(Plan(starts=(start_of("b"),))) == ("default/b/main-0",)

    run(test())


def test_one_kaiwo_per_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.clusters.local.home_folder.LOCK_WAIT_S", 0.05)

    async def test() -> None:
        async with kaiwo(tmp_path):
            with pytest.raises(ClusterError, match=rf"another Kaiwo \(pid {os.getpid()}\).*KAIWO_HOME"):
                LocalCluster(tmp_path)
        async with kaiwo(tmp_path):
            pass

    run(test())


def test_runs_beyond_the_file_descriptors_are_looked_after_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.clusters.local.processes.MAX_PIDFDS", 0)
    monkeypatch.setattr("kaiwo.clusters.local.processes.POLL_S", 0.01)

    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            await begin(cluster, "short", shell("exit 0"))
            await begin(cluster, "long", shell("sleep 60"), start_of("long", devices=whole(1)))
            await until_state(cluster, "short", WorkloadState.SUCCEEDED)
            await until_state(cluster, "long", WorkloadState.RUNNING)
        async with kaiwo(tmp_path) as cluster:
            await cluster.work.change("cancel", "default/long")
            await until_state(cluster, "long", WorkloadState.CANCELLED)

    run(test())


def test_a_process_that_cannot_be_started_is_a_refused_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kaiwo.clusters.local.processes.sys.executable", str(tmp_path / "nothing"))

    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            for refusals in (1, 2):
                starts = [start_of("gang", f"main-{index}", devices=whole(index)) for index in range(2)]
                if refusals == 1:
                    await begin(cluster, "gang", shell("exit 0"), *starts, pods=2)
                else:
                    await cluster.apply(Plan(starts=tuple(starts)))
                await until_state(cluster, "gang", WorkloadState.WAITING)
                workload = cluster.record("default/gang").workload
                assert "its process cannot be started" in workload.not_before_why
                assert cluster.state.workloads["default/gang"].refusals == refusals
            assert cluster.state.pods == {}

    run(test())


def test_a_supervisor_that_dies_early_is_replaced_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "dies.py"
    script.write_text("import os; os.write(int(os.sys.argv[2]), b'') ; os.kill(os.getpid(), 9)")
    monkeypatch.setattr("kaiwo.clusters.local.processes.SCRIPT", script)

    async def test() -> None:
        async with kaiwo(tmp_path / "home") as cluster:
            await begin(cluster, "a", shell("exit 0"))
            await until_state(cluster, "a", WorkloadState.WAITING)
            assert "supervisor was killed before" in cluster.record("default/a").workload.not_before_why

    run(test())


def test_many_jobs_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path) as cluster:
            names = [f"job-{index:02d}" for index in range(40)]
            cpu = Request(cpu_milli=1000)
            await cluster.work.submit(
                [(work(name, request=cpu), shell("echo $KAIWO_WORKLOAD >> ../../../all")) for name in names]
            )
            await cluster.apply(Plan(starts=tuple(start_of(name, devices=()) for name in names)))
            await until(
                lambda: all(record.state is WorkloadState.SUCCEEDED for record in cluster.records()), "all jobs"
            )
            assert sorted((tmp_path / "all").read_text().split()) == [f"default/{name}" for name in names]

    run(test())
