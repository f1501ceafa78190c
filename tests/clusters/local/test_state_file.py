"""state.db damaged, emptied or lost: the start is checked, and no work is lost, run twice or given a GPU in use."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster, state_file
from kaiwo.clusters.local.processes import is_alive
from kaiwo.clusters.local.run_folder import RunFolder
from kaiwo.clusters.local.state_file import back_up, back_up_in, check_file, restore
from kaiwo.model.errors import ClusterError
from kaiwo.model.plan import Plan
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Phase
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import log_path, put_queue, some_nodes, start_of, whole, work
from tests.waiting import run, until

SLEEPS = Program(command=("sleep", "600"), env={"MINE": "yes"})


def refused(home: Path) -> str:
    try:
        cluster = LocalCluster(home)
    except ClusterError as error:
        return str(error)
    cluster._store.close()
    cluster.home.close()
    return ""


def lose(home: Path) -> None:
    for path in home.glob("state.db*"):
        path.unlink()


def empty(home: Path) -> None:
    lose(home)
    (home / "state.db").touch()


async def with_a_running_job(home: Path, name: str = "train") -> LocalCluster:
    cluster = LocalCluster(home, some_nodes(1), grace_s=0.5)
    await put_queue(cluster, Queue("lab"))
    await cluster.work.submit([(work(name, queue="lab"), SLEEPS)])
    await cluster.apply(Plan(starts=(start_of(name),)))
    await until(lambda: cluster.record(f"default/{name}").state is WorkloadState.RUNNING)
    return cluster


async def end(cluster: LocalCluster) -> None:
    for record in cluster.records():
        if not record.state.is_over:
            await cluster.work.change("cancel", record.workload.name)
    await until(lambda: all(record.state.is_over for record in cluster.records()))
    await cluster.close()


@pytest.mark.parametrize("damage", [lose, empty])
def test_a_new_job_never_gets_the_gpu_of_a_live_one_after_the_state_was_lost(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    async def test() -> None:
        first = await with_a_running_job(tmp_path)
        (before,) = first.state.pods.values()
        await first.close()
        damage(tmp_path)
        second = LocalCluster(tmp_path, some_nodes(1), grace_s=0.5)
        (after,) = second.state.pods.values()
        assert (after.run, after.pod.devices) == (before.run, before.pod.devices)
        assert "1 running workloads were adopted from their folders: default/train" in second.notices
        record = second.record("default/train")
        assert (record.workload.queue, record.program.env) == ("lab", {"MINE": "yes"})
        await second.start()
        await until(lambda: second.record("default/train").state is WorkloadState.RUNNING)
        await second.work.submit([(work("other"), SLEEPS)])
        assert await second.apply(Plan(starts=(start_of("other"),))) == ()  # gpu-0 is in use
        assert await second.apply(Plan(starts=(start_of("other", devices=whole(1)),)))
        await end(second)

    run(test())


def test_a_kaiwo_on_a_copy_of_the_home_leaves_the_processes_of_the_original_alone(tmp_path: Path) -> None:
    """Somebody tries a restore, or an upgrade, on a copy."""

    async def test() -> None:
        first = await with_a_running_job(tmp_path / "home")
        (placement,) = first.state.pods.values()
        start = RunFolder(tmp_path / "home" / "runs" / placement.run.id).start_record()
        assert start is not None
        await first.close()
        shutil.copytree(tmp_path / "home", tmp_path / "copy")
        copy = LocalCluster(tmp_path / "copy", some_nodes(1), grace_s=0.5)
        await copy.start()
        await until(lambda: copy.record("default/train").state.is_over)
        await copy.work.forget_ended(["default/train"])  # its folder goes, and the processes stay
        await until(lambda: not any((tmp_path / "copy" / "runs").iterdir()))
        await copy.close()
        assert is_alive(start.pid, start.ticks)
        again = LocalCluster(tmp_path / "home", some_nodes(1), grace_s=0.5)
        await again.start()
        await until(lambda: again.record("default/train").state is WorkloadState.RUNNING)
        assert again.record("default/train").attempt == 1
        await end(again)

    run(test())


def test_a_lost_run_of_a_home_that_was_moved_is_still_its_own(tmp_path: Path) -> None:
    async def test() -> None:
        first = await with_a_running_job(tmp_path / "home")
        (placement,) = first.state.pods.values()
        folder = RunFolder(tmp_path / "home" / "runs" / placement.run.id)
        start = folder.start_record()
        assert start is not None
        await first.close()
        os.kill(start.supervisor, signal.SIGKILL)
        (tmp_path / "home").rename(tmp_path / "moved")
        moved = LocalCluster(tmp_path / "moved", some_nodes(1), grace_s=0.5)
        await moved.start()
        await until(lambda: moved.record("default/train").state.is_over)
        assert not is_alive(start.pid, start.ticks)
        await moved.close()

    run(test())


def test_a_live_run_of_an_older_kaiwo_is_adopted_too(tmp_path: Path) -> None:
    async def test() -> None:
        first = await with_a_running_job(tmp_path)
        (placement,) = first.state.pods.values()
        await first.close()
        spec = tmp_path / "runs" / placement.run.id / "run.json"
        content = json.loads(spec.read_text())
        del content["saved"]
        spec.write_text(json.dumps(content))
        lose(tmp_path)
        second = LocalCluster(tmp_path, some_nodes(1), grace_s=0.5)
        (after,) = second.state.pods.values()
        assert (after.pod.workload, after.pod.node) == ("default/train", "node-1")
        assert after.pod.devices == placement.pod.devices
        await second.start()
        await end(second)

    run(test())


def test_after_a_loss_ended_work_and_its_logs_are_read_back(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1))
        for name, code in (("good", 0), ("bad", 3)):
            await first.work.submit([(work(name), Program(command=("sh", "-c", f"echo {name}; exit {code}")))])
            await first.apply(Plan(starts=(start_of(name),)))
            await until(lambda name=name: first.record(f"default/{name}").state.is_over)  # type: ignore[misc]
        await first.close()
        lose(tmp_path)
        second = LocalCluster(tmp_path, some_nodes(1))
        await second.start()
        assert second.record("default/good").state is WorkloadState.SUCCEEDED
        assert second.record("default/bad").exit_code == 3
        assert Path(log_path(second, "default/bad")).read_text() == "bad\n"
        assert not second.state.pods
        await second.close()

    run(test())


@pytest.mark.parametrize("damage", [lose, empty])
def test_with_a_backup_a_lost_state_is_refused_and_can_be_restored(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1), grace_s=0.5)
        ran = tmp_path / "ran"
        count = Program(command=("sh", "-c", f"echo x >> {ran}; [ $KAIWO_WORKLOAD = default/short ] || sleep 600"))
        await first.work.submit([(work(name), count) for name in ("short", "long", "waits")])
        back_up_in(tmp_path)  # while it runs
        await first.apply(Plan(starts=(start_of("short"), start_of("long", devices=whole(1)))))
        await until(lambda: first.record("default/short").state.is_over)
        await until(lambda: first.record("default/long").state is WorkloadState.RUNNING)
        await first.close()
        damage(tmp_path)
        with pytest.raises(
            ClusterError, match=r"state\.db is (missing|empty), but there is a backup of .*kaiwo restore"
        ):
            LocalCluster(tmp_path)
        assert restore(tmp_path).backup is not None
        second = LocalCluster(tmp_path, grace_s=0.5)
        await second.start()
        states = {record.workload.name: record.state for record in second.records()}
        assert states["default/short"] is WorkloadState.SUCCEEDED  # it ended after the backup: it does not run again
        assert states["default/long"] in (WorkloadState.RUNNING, WorkloadState.STARTING)
        assert states["default/waits"] is WorkloadState.WAITING
        assert ran.read_text() == "x\nx\n"
        await end(second)

    run(test())


def test_a_bad_row_is_set_aside_by_name_and_all_others_are_read(tmp_path: Path) -> None:
    async def test() -> None:
        first = await with_a_running_job(tmp_path)
        await first.work.submit([(work("fine"), Program()), (work("broken"), Program())])
        await first.close()
        with sqlite3.connect(tmp_path / "state.db") as db:
            db.execute("UPDATE workloads SET data = x'c1c1' WHERE name IN ('default/broken', 'default/train')")
        second = LocalCluster(tmp_path, grace_s=0.5)
        assert [record.workload.name for record in second.records()] == ["default/fine", "default/train"]
        (placement,) = second.state.pods.values()  # read back from its folder: it still runs
        assert placement.pod.phase is Phase.RUNNING
        assert any("workloads default/broken" in notice for notice in second.notices)
        await second.start()
        await end(second)
        with sqlite3.connect(tmp_path / "state.db") as db:
            names = {name for (name,) in db.execute("SELECT name FROM set_aside WHERE source = 'workloads'")}
        assert names == {"default/broken", "default/train"}

    run(test())


def test_a_bad_row_comes_from_the_backup_where_there_is_one(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1))
        await first.work.submit([(work("broken", priority=7), Program())])
        back_up_in(tmp_path)
        await first.close()
        with sqlite3.connect(tmp_path / "state.db") as db:
            db.execute("UPDATE workloads SET data = x'c1c1'")
        second = LocalCluster(tmp_path)
        assert second.record("default/broken").workload.priority == 7
        await second.close()

    run(test())


def test_damage_that_no_query_of_the_start_meets_is_found_by_the_check(tmp_path: Path) -> None:
    """The rows of a table are read without its index, and the first change would fail."""

    async def make() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.work.submit([(work("w"), SLEEPS)])
        await cluster.close()

    run(make())
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db:
        (page,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name LIKE 'sqlite_autoindex_workloads%'"
        ).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 64)
    assert "is damaged" in (said := refused(tmp_path)), said
    assert "kaiwo restore" in said


def test_whatever_is_damaged_the_start_works_or_names_the_file_and_the_way_out(tmp_path: Path, test_size: int) -> None:
    """Random bytes, cut and zeroed pages, in a file that has a backup."""

    async def make() -> None:
        cluster = LocalCluster(tmp_path / "whole", some_nodes(1))
        await cluster.work.submit([(work(f"old-{index}"), Program()) for index in range(150)])
        back_up_in(tmp_path / "whole")
        await cluster.close()

    async def names_after(home: Path) -> set[str]:
        if refusal := refused(home):
            assert "state.db is" in refusal
            assert "kaiwo restore" in refusal
            restore(home)
        cluster = LocalCluster(home)
        await cluster.close()
        return {record.workload.name for record in cluster.records()}

    run(make())
    content = (tmp_path / "whole" / "state.db").read_bytes()
    chance = random.Random(15)
    for number in range(30 * test_size):
        home = tmp_path / f"home-{number}"
        (home / "backups").mkdir(parents=True)
        (backup,) = (tmp_path / "whole" / "backups").iterdir()
        (home / "backups" / backup.name).write_bytes(backup.read_bytes())
        damaged, at = bytearray(content), chance.randrange(len(content))
        match number % 4:
            case 0:
                damaged[at : at + 64] = chance.randbytes(64)
            case 1:
                damaged[at : at + 8192] = bytes(min(8192, len(content) - at))
            case 2:
                del damaged[at:]
            case _:
                damaged[at] ^= 1 << chance.randrange(8)
        (home / "state.db").write_bytes(damaged)
        assert {f"default/old-{index}" for index in range(150)} <= run(names_after(home)), (number, at)


def test_what_came_after_the_backup_is_saved_from_a_damaged_file(tmp_path: Path) -> None:
    async def test() -> None:
        first = LocalCluster(tmp_path, some_nodes(1))
        await first.work.submit([(work(f"old-{index}"), Program()) for index in range(100)])
        back_up_in(tmp_path)
        await first.work.submit([(work(f"new-{index}"), Program()) for index in range(400)])
        await first.close()
        content = bytearray((tmp_path / "state.db").read_bytes())
        at = content.rfind(b"default/new-399")
        content[at - at % 4096 : at - at % 4096 + 200] = os.urandom(200)  # one page of the table
        (tmp_path / "state.db").write_bytes(content)
        with pytest.raises(ClusterError, match="kaiwo restore"):
            LocalCluster(tmp_path)
        done = restore(tmp_path)
        assert done.set_aside is not None
        assert done.set_aside.exists()
        second = LocalCluster(tmp_path)
        names = {record.workload.name for record in second.records()}
        assert {f"default/old-{index}" for index in range(100)} <= names
        assert len(names) > 450  # all but those on the damaged page
        await second.close()

    run(test())


def test_a_backup_that_is_damaged_itself_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.close()

    run(test())
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"nonsense" * 1000)
    with pytest.raises(Exception, match=r"bad\.db is not a usable backup"):
        restore(tmp_path, bad)
    assert check_file(tmp_path / "state.db") == ""


def test_a_submit_is_acknowledged_only_after_the_disk_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1))
        await cluster.start()
        may_flush, flushes = threading.Event(), []
        real = os.fdatasync

        def slow(fd: int) -> None:
            flushes.append(os.readlink(f"/proc/self/fd/{fd}"))
            may_flush.wait(60)
            real(fd)

        monkeypatch.setattr(os, "fdatasync", slow)
        submits = [asyncio.create_task(cluster.work.submit([(work(f"job-{n}"), Program())])) for n in range(50)]
        await until(lambda: len(cluster.records()) == 50)
        assert not any(task.done() for task in submits)
        may_flush.set()
        await asyncio.gather(*submits)
        assert len(flushes) <= 5  # one flush serves many
        assert set(flushes) == {str(tmp_path / "state.db-wal")}
        monkeypatch.undo()
        await cluster.close()

    run(test())


def test_a_plan_does_not_wait_for_the_disk_but_its_processes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path, some_nodes(1), grace_s=0.5)
        await cluster.work.submit([(work("job"), SLEEPS)])
        may_flush, real = threading.Event(), os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda fd: (may_flush.wait(60), real(fd)))
        assert await cluster.apply(Plan(starts=(start_of("job"),))) == ("default/job/main-0",)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not list((tmp_path / "runs").iterdir())
        may_flush.set()
        await until(lambda: cluster.record("default/job").state is WorkloadState.RUNNING)
        monkeypatch.undo()
        await end(cluster)
        await cluster.close()

    run(test())


@pytest.mark.slow
@pytest.mark.serial
def test_a_large_file_is_checked_in_seconds_with_progress(
    tmp_path: Path, test_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 MB here, 1 GB in a full run; 10 s are allowed for 1 GB, of the time in which this thread has a processor:
    other programs and their disk may take as long as they like."""
    cluster = LocalCluster(tmp_path, some_nodes(1))
    cluster._store.close()
    cluster.home.close()
    db = sqlite3.connect(tmp_path / "state.db")
    for part in range(test_size):
        rows = ((f"job-{part}-{index}", "succeeded", "default", os.urandom(450)) for index in range(190_000))
        db.executemany("INSERT INTO workloads VALUES (?, ?, ?, ?)", rows)
        db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert (tmp_path / "state.db").stat().st_size > 95_000_000 * test_size
    lines: list[str] = []
    monkeypatch.setattr(state_file, "FIRST_REPORT_S", 0.0)  # a fast machine is done before the first report
    began = time.thread_time()
    assert check_file(tmp_path / "state.db", lines.append) == ""
    assert time.thread_time() - began < test_size
    size_mb = (tmp_path / "state.db").stat().st_size / 1e6
    assert f"state.db ({size_mb:,.0f} MB): " in lines[0]


def test_a_backup_has_one_moment_and_is_private(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = LocalCluster(tmp_path / "home", some_nodes(1))
        target = tmp_path / "copies" / "one.db"
        for number in range(20):
            await cluster.work.submit([(work(f"job-{number}"), Program())])
            await asyncio.to_thread(back_up, tmp_path / "home" / "state.db", target)
            with sqlite3.connect(target) as db:
                assert db.execute("SELECT count(*) FROM workloads").fetchone() == (number + 1,)
        assert target.stat().st_mode & 0o077 == 0
        await cluster.close()

    run(test())


def test_a_lost_run_is_no_live_one(tmp_path: Path) -> None:
    """Its supervisor was killed and the state lost: what is left of it is stopped before its GPU is free again."""

    async def test() -> None:
        first = await with_a_running_job(tmp_path)
        (placement,) = first.state.pods.values()
        await first.close()
        start = RunFolder(tmp_path / "runs" / placement.run.id).start_record()
        assert start is not None
        os.kill(start.supervisor, signal.SIGKILL)
        lose(tmp_path)
        second = LocalCluster(tmp_path, some_nodes(1), grace_s=0.5)
        assert second.state.pods  # until it is stopped, nobody else gets its GPU
        await second.start()
        await until(lambda: second.record("default/train").state is WorkloadState.FAILED)
        assert not is_alive(start.pid, start.ticks)
        await second.close()

    run(test())


def test_a_backup_has_policy_tokens_and_silences_and_brings_them_back_for_their_owner_alone(tmp_path: Path) -> None:
    """Also a change that is in the log of alerts.db only. A repair replaces none that is there."""
    home, copy = tmp_path / "home", tmp_path / "copy.db"

    async def some_state() -> None:
        cluster = LocalCluster(home, some_nodes(1))
        await put_queue(cluster, Queue("lab"))
        await cluster.close()

    run(some_state())
    (home / "policy.json").write_text('{"a": 1}')
    (home / "tokens.json").write_text("[]")
    with contextlib.closing(sqlite3.connect(home / "alerts.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE silences (data TEXT)")
        db.execute("INSERT INTO silences VALUES ('maintenance')")
        db.commit()
        back_up(home / "state.db", copy)
        db.execute("INSERT INTO silences VALUES ('later')")
        db.commit()
        shutil.copy(home / "alerts.db-wal", tmp_path)
    shutil.copy(tmp_path / "alerts.db-wal", home)  # as a kill leaves it
    assert copy.stat().st_mode & 0o777 == 0o600
    (home / "policy.json").write_text('{"a": 2}')
    done = restore(home, copy)
    assert list(done.files) == ["alerts.db", "policy.json", "tokens.json"]
    assert ((home / "policy.json").read_text(), (home / "tokens.json").read_text()) == ('{"a": 1}', "[]")
    assert [(home / name).stat().st_mode & 0o777 for name in done.files] == [0o600] * 3
    with contextlib.closing(sqlite3.connect(home / "alerts.db")) as db:
        assert db.execute("SELECT data FROM silences").fetchall() == [("maintenance",)]
    assert [each.read_text() for each in home.glob("policy.json.before-restore-*")] == ['{"a": 2}']
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'kept_files'").fetchall()
    assert refused(home) == ""
    back_up_in(home)
    (home / "policy.json").unlink()
    (home / "tokens.json").write_text("[1]")
    assert list(restore(home).files) == ["policy.json"]
    assert (home / "tokens.json").read_text() == "[1]"
