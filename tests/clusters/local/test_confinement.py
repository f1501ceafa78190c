"""Runs in cgroups of their own, with real processes: limits hold, nobody escapes, and nothing is left behind.

Skipped where this machine gives Kaiwo no cgroups; `test_cgroup_place.py` has the choices on made-up machines.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.clusters.local import processes
from kaiwo.clusters.local.cgroups import RunCgroups, find_cgroups
from kaiwo.clusters.local.processes import find_supervisor
from kaiwo.clusters.local.run_cgroup import RunCgroup
from kaiwo.clusters.local.run_cgroup import processes as processes_in
from kaiwo.model.request import Request
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import start_of, whole
from tests.clusters.local.test_reconcile import begin, folder_of, kaiwo, shell, until_state
from tests.waiting import PATIENCE_S, run, until

MOST = 40  # processes of a run in these tests
LIMIT_MIB = 64
HOG = f"x = bytearray({4 * LIMIT_MIB} << 20)"
# Leaves its session and its parents behind, and forgets its environment. Writes its pid to the file in $1.
ESCAPE = "setsid env -i PATH=$PATH sh -c 'sh -c \"echo \\$\\$ >$1.part; mv $1.part $1; exec sleep 1000\" &' - $1 &"


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[RunCgroups]:
    found = find_cgroups(str(tmp_path), MOST)
    if found.promise:
        pytest.skip(f"this machine gives Kaiwo no cgroups: {found.promise}")
    yield found
    remove(found)


def remove(cgroups: RunCgroups) -> None:
    cgroups.remove_all_but(())
    for folder in cgroups.folders_of("any"):
        with contextlib.suppress(OSError):  # the upper one is for all homes; another test may use it
            os.rmdir(os.path.dirname(folder))
            os.rmdir(os.path.dirname(os.path.dirname(folder)))


def asking(memory_mib: int) -> Request:
    return Request(cpu_milli=1000, memory_mib=memory_mib, gpus=1)


def python(script: str) -> Program:
    return Program(command=(sys.executable, "-c", script))


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_over_its_memory_is_ended_as_a_whole_and_others_are_untouched(
    tmp_path: Path, cgroups: RunCgroups
) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            await begin(cluster, "calm", shell("sleep 1000"), start_of("calm", devices=whole(1)))
            await until_state(cluster, "calm", WorkloadState.RUNNING)
            # The kernel chooses the process that uses most; the shell and its other child would go on without it.
            script = f"sleep 1000 & echo $! >../child; {sys.executable} -c '{HOG}'; wait"
            await begin(cluster, "hog", shell(script), request=asking(LIMIT_MIB))
            folder = folder_of(cluster, "hog")
            await until_state(cluster, "hog", WorkloadState.FAILED)
            record = cluster.record("default/hog")
            assert record.message == "pod main-0 used more than the 64 MiB that it asked for"
            assert record.exit_code == -signal.SIGKILL
            (attempt,) = cluster.attempts_of("default/hog")
            assert attempt.message == record.message
            assert LIMIT_MIB * 3 // 4 <= attempt.peak_mib <= LIMIT_MIB
            assert not exists(int((folder.path / "child").read_text()))
            assert cluster.record("default/calm").state is WorkloadState.RUNNING
            assert not RunCgroup(folder_of(cluster, "calm").cgroup().folders).is_empty()

    run(test())


def test_the_most_memory_that_a_run_used_is_kept(tmp_path: Path, cgroups: RunCgroups) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            await begin(cluster, "a", python("x = bytearray(48 << 20); del x"), request=asking(200))
            await until_state(cluster, "a", WorkloadState.SUCCEEDED)
            (attempt,) = cluster.attempts_of("default/a")
            assert 48 <= attempt.peak_mib < 120

    run(test())
    assert not any(os.path.exists(os.path.dirname(folder)) for folder in cgroups.folders_of("any"))  # nothing is left


def test_a_fork_bomb_stays_in_its_bounds(tmp_path: Path, cgroups: RunCgroups) -> None:
    """It tries for ever to have more, but never more than 300 at once, should the limit not hold."""
    script = (
        "import os, time\n"
        "began = 0\n"
        "for _ in range(300):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(1000)\n"
        "        began += 1\n"
        "    except BlockingIOError: break\n"
        "print(began, flush=True)\n"
        "time.sleep(1000)\n"
    )
    if not any("pids" in each.controllers for each in cgroups.hierarchies):
        pytest.skip("this machine does not limit the number of processes")

    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            await begin(cluster, "bomb", python(script))
            await until_state(cluster, "bomb", WorkloadState.RUNNING)
            folder = folder_of(cluster, "bomb")
            await until(lambda: folder.log.read_text().strip(), "the bomb")
            assert int(folder.log.read_text()) == MOST - 1
            await begin(cluster, "calm", shell("sleep 0.01"), start_of("calm", devices=whole(1)))
            await until_state(cluster, "calm", WorkloadState.SUCCEEDED)
            await cluster.work.change("cancel", "default/bomb")
            await until_state(cluster, "bomb", WorkloadState.CANCELLED)
            assert not any(os.path.exists(each) for each in folder.cgroup().folders)

    run(test())


def test_nobody_escapes_by_setsid_and_killing_the_supervisor(tmp_path: Path, cgroups: RunCgroups) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            pid_file = tmp_path / "pid"
            waits = f"while [ ! -e {pid_file} ]; do sleep 0.01; done; kill -9 $PPID; exec sleep 1000"
            await begin(cluster, "a", shell(f"set -- {pid_file}; {ESCAPE} {waits}"))
            await until_state(cluster, "a", WorkloadState.FAILED)
            assert "its supervisor was killed" in cluster.record("default/a").message
            assert not exists(int(pid_file.read_text()))

    run(test())


def test_what_escaped_while_kaiwo_was_away_is_ended_before_its_gpu_is_given_away(
    tmp_path: Path, cgroups: RunCgroups
) -> None:
    async def test() -> None:
        pid_file = tmp_path / "pid"
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            await begin(cluster, "a", shell(f"set -- {pid_file}; {ESCAPE} exec sleep 1000"))
            await until(pid_file.exists, "the process to escape")
            start = folder_of(cluster, "a").start_record()
        assert start is not None
        for pid in (start.supervisor, start.pid):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: find_supervisor(start, False) is None, "the supervisor to end")
        assert exists(int(pid_file.read_text()))
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            await until_state(cluster, "a", WorkloadState.FAILED)
            assert not exists(int(pid_file.read_text()))

    run(test())


def test_a_cancelled_run_takes_along_what_left_its_session(tmp_path: Path, cgroups: RunCgroups) -> None:
    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            pid_file = tmp_path / "pid"
            await begin(cluster, "a", shell(f"set -- {pid_file}; {ESCAPE} exec sleep 1000"))
            await until(pid_file.exists, "the process to escape")
            folder = folder_of(cluster, "a")
            await cluster.work.change("cancel", "default/a")
            await until_state(cluster, "a", WorkloadState.CANCELLED)
            assert not exists(int(pid_file.read_text()))
            await until(lambda: not any(map(os.path.exists, folder.cgroup().folders)), "the cgroups to go")

    run(test())


def test_a_run_that_stops_its_own_supervisor_can_be_cancelled(
    tmp_path: Path, cgroups: RunCgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LATE_S", 0.1)

    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            script = "trap '' TERM; kill -STOP $PPID; touch ../stopped; while :; do sleep 0.05; done"
            await begin(cluster, "a", shell(script))
            await until((folder_of(cluster, "a").path / "stopped").exists, "the supervisor to be stopped")
            await cluster.work.change("cancel", "default/a")
            await until_state(cluster, "a", WorkloadState.CANCELLED)

    run(test())


def test_a_run_has_not_ended_while_a_process_of_it_cannot_be_killed(tmp_path: Path, cgroups: RunCgroups) -> None:
    """A frozen process of cgroup v1 stands for one that hangs in a driver."""
    frozen = Path("/sys/fs/cgroup/freezer") / f"kaiwo-test-{os.getpid()}"
    try:
        frozen.mkdir()
    except OSError:
        pytest.skip("this machine has no freezer of cgroup v1")

    async def test() -> None:
        async with kaiwo(tmp_path, cgroups=cgroups) as cluster:
            cluster.grace_s = 0.1
            pid_file = tmp_path / "pid"
            await begin(cluster, "a", shell(f"set -- {pid_file}; {ESCAPE} exec sleep 1000"))
            await until(pid_file.exists, "the process to escape")
            folder, pid = folder_of(cluster, "a"), int(pid_file.read_text())
            start = folder.start_record()
            assert start is not None
            (frozen / "cgroup.procs").write_text(str(pid))
            (frozen / "freezer.state").write_text("FROZEN")
            await cluster.work.change("cancel", "default/a")
            await until(lambda: not exists(start.pid), "the command to end")
            for kill in (lambda: None, lambda: os.kill(start.supervisor, signal.SIGKILL)):
                kill()  # neither the supervisor nor, without it, Kaiwo gives up
                await asyncio.sleep(6)  # the supervisor waits 4 s for what can be killed, Kaiwo 5 s
                assert cluster.record("default/a").state is WorkloadState.STOPPING
                assert not (folder.path / "exit.json").exists()
            (frozen / "freezer.state").write_text("THAWED")
            await until_state(cluster, "a", WorkloadState.CANCELLED)
            assert not exists(pid)

    try:
        run(test())
    finally:
        (frozen / "freezer.state").write_text("THAWED")
        asyncio.run(asyncio.wait_for(until(lambda: not processes_in(str(frozen)), "the thawed process"), PATIENCE_S))
        frozen.rmdir()


def test_leftovers_are_ended_at_the_start_but_not_those_of_another_home(tmp_path: Path, cgroups: RunCgroups) -> None:
    """Of a run whose folder is gone as well."""
    other = find_cgroups(str(tmp_path / "other"), MOST)
    children = []
    try:
        for owner in (cgroups, other):
            folders = owner.make("leftover", 0, 0)
            if (pid := os.fork()) == 0:
                RunCgroup(folders).enter()
                os.execvp("sleep", ["sleep", "1000"])
            children.append(pid)
        mine, others = (RunCgroup(owner.folders_of("leftover")) for owner in (cgroups, other))

        async def test() -> None:
            await until(lambda: not mine.is_empty() and not others.is_empty(), "both to run")
            async with kaiwo(tmp_path, cgroups=cgroups):
                await until(lambda: not any(map(os.path.exists, mine.folders)), "the leftover to go")
            assert not others.is_empty()

        run(test())
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        remove(other)
