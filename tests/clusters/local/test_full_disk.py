"""A full disk: logs are capped, nothing starts without room, and the end of a run is recorded whatever happens."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.api.routes.logs import read_all
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local.disk_space import DiskLimits
from kaiwo.clusters.local.run_folder import RunCondition, RunFolder
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import log_path, some_nodes, start_of, whole, work
from tests.small_disk import mounted_disk
from tests.waiting import run, until

NO_MARK = DiskLimits(keep_free_bytes=0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", size_mb=8) as folder:
        yield folder


def shell(text: str, **more: int) -> Program:
    return Program(command=("sh", "-c", text), **more)  # type: ignore[arg-type]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


@pytest.mark.parametrize("code", [0, 7])
def test_a_job_that_ends_on_a_full_disk_has_its_exit_code_and_runs_once(
    small_disk: Path, tmp_path: Path, code: int
) -> None:
    async def test() -> None:
        cluster = LocalCluster(small_disk / "home", some_nodes(1), disk=NO_MARK)
        filled, ran = small_disk / "filled", tmp_path / "ran"
        text = f"echo x >> {ran}; head -c 20M /dev/zero > {filled}; echo to the log; exit {code}"
        await cluster.work.submit([(work("job"), shell(text, retries=1 if code == 0 else 0))])
        await cluster.apply(Plan(starts=(start_of("job"),)))
        (placement,) = cluster.state.pods.values()
        folder = RunFolder(small_disk / "home" / "runs" / placement.run.id)
        await until(lambda: folder.condition() is RunCondition.ENDED)
        assert os.statvfs(small_disk).f_bavail == 0  # its record was written without any room
        assert folder.end().code == code
        filled.unlink()
        await until(lambda: cluster.record("default/job").state.is_over)
        record = cluster.record("default/job")
        assert (record.state is WorkloadState.SUCCEEDED, record.exit_code, record.attempt) == (code == 0, code, 1)
        assert ran.read_text() == "x\n"
        await cluster.close()

    run(test())


def test_no_work_starts_below_the_low_water_mark_and_why_says_so(small_disk: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(small_disk / "home", some_nodes(1), disk=DiskLimits(keep_free_bytes=4_000_000))
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 5_000_000)
        await cluster.work.submit([(work("job"), shell("true")), (work("simulated"), Program(simulated_s=1000))])
        assert await cluster.apply(Plan(starts=(start_of("job"),))) == ()
        workload = cluster.record("default/job").workload
        assert workload.not_before_s > cluster.now_s()
        assert "MB free, and Kaiwo starts nothing below 4 MB; free some space there" in workload.not_before_why
        assert await cluster.apply(Plan(starts=(start_of("simulated"),)))  # it writes nothing
        ballast.unlink()
        await until(lambda: not cluster.state.why_no_runs)
        await cluster.work.change("cancel", "default/simulated")
        assert await cluster.apply(Plan(starts=(start_of("job"),)))
        await until(lambda: cluster.record("default/job").state is WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())


def test_of_a_long_log_the_first_and_the_last_part_are_kept(tmp_path: Path) -> None:
    async def test() -> None:
        limits = DiskLimits(keep_free_bytes=0, log_bytes=2_000_000)
        cluster = LocalCluster(tmp_path, some_nodes(1), disk=limits)
        text = "echo first line; seq 1 3000000; sleep 1.5; seq 3000001 6000000; echo last line"
        await cluster.work.submit([(work("talks"), shell(text))])
        await cluster.apply(Plan(starts=(start_of("talks"),)))
        await until(lambda: cluster.record("default/talks").state.is_over)
        assert cluster.record("default/talks").state is WorkloadState.SUCCEEDED
        log = Path(log_path(cluster, "default/talks"))
        assert log.stat().st_size > 40_000_000
        assert log.stat().st_blocks * 512 < 2_500_000
        shown = b"".join([part async for part in read_all(str(log), None)])
        assert shown.startswith(b"first line\n1\n2\n")
        assert shown.endswith(b"5999999\n6000000\nlast line\n")
        assert shown.count(b"MB of this log were removed: it was longer than --log-size") == 1
        assert b"\0" not in shown
        last = b"".join([part async for part in read_all(str(log), 2)])
        assert last == b"6000000\nlast line\n"
        await cluster.close()

    run(test())


def test_finished_work_survives_a_disk_that_is_full_at_random_moments(
    small_disk: Path, tmp_path: Path, test_size: int
) -> None:
    """The disk fills and empties again while short jobs run; each of them runs once and keeps its result."""

    async def test() -> None:
        cluster = LocalCluster(small_disk / "home", some_nodes(1), disk=NO_MARK)
        count = 8 * test_size
        jobs = {f"job-{index}": index % 3 for index in range(count)}
        programs = [
            (work(name), shell(f"echo {name} >> {tmp_path}/ran; sleep 0.2; exit {code}")) for name, code in jobs.items()
        ]
        await cluster.work.submit(programs)
        for name, code in jobs.items():
            await cluster.apply(Plan(starts=(start_of(name),)))
            await until(lambda name=name: cluster.record(f"default/{name}").state is not WorkloadState.STARTING)  # type: ignore[misc]
            fill(small_disk / "filled")
            await asyncio.sleep(0.3)
            (small_disk / "filled").unlink()
            await until(lambda name=name: cluster.record(f"default/{name}").state.is_over)  # type: ignore[misc]
            assert cluster.record(f"default/{name}").exit_code == code
        assert sorted((tmp_path / "ran").read_text().split()) == sorted(jobs)
        await cluster.close()

    run(test())


@pytest.mark.parametrize("pods", [1, 2])
def test_work_whose_start_was_given_up_when_kaiwo_was_killed_waits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: int
) -> None:
    """The disk is full when its process is to start. Kaiwo makes sure that it never will, and is killed then."""

    async def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def forgets(*_: object) -> None:
        """Killed before it stores that the start was given up."""

    async def first() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), disk=NO_MARK)
        processes = cluster._processes
        monkeypatch.setattr(processes, "_start", fails)
        monkeypatch.setattr(processes, "_listener", processes._listener._replace(refused=forgets))
        await cluster.work.submit([(work("job", pods=pods), shell("exit 0"))])
        await cluster.apply(Plan(starts=tuple(start_of("job", f"main-{at}", devices=whole(at)) for at in range(pods))))
        folders = [RunFolder(tmp_path / "runs" / placement.run.id) for placement in cluster.state.pods.values()]
        await until(lambda: all(folder.condition() is RunCondition.ENDED for folder in folders))
        await cluster.close()

    async def second() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), disk=NO_MARK)
        reader = asyncio.create_task(anext(aiter(cluster.events())))  # it goes on with what it finds
        await until(lambda: not cluster.state.pods)
        record = cluster.record("default/job")
        assert record.state is WorkloadState.WAITING, record
        assert "No space left on device" in record.message
        await reader
        await cluster.close()

    run(first())
    run(second())
