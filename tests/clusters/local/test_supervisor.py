"""The supervisor, with real processes: one run, its records, its end, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kaiwo.clusters.embedded.lifecycle import ExitReason
from kaiwo.clusters.local.processes import SCRIPT, is_alive
from kaiwo.clusters.local.run_folder import ExitRecord, RunCondition, RunFolder, RunSpec
from kaiwo.clusters.local.supervisor import IS_TAKEN, boot_id, start_ticks, write_json
from tests.waiting import PATIENCE_S, is_in_time


class Case:
    """One run folder and the supervisors started on it."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.processes: list[subprocess.Popen[bytes]] = []

    def prepare(self, *command: str, limit_s: int = 0, grace_s: float = 5, workdir: str = "", **env: str) -> None:
        path = self.folder.path
        env["KAIWO_RUN_DIR"] = str(path)
        work = workdir or str(path / "work")
        self.folder.prepare(RunSpec(command, env, work, str(path / "log"), limit_s, grace_s))

    def supervise(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", SCRIPT, self.folder.path]
        process = subprocess.Popen(command, start_new_session=True)
        self.processes.append(process)
        return process

    def run(self, *command: str, **options: object) -> ExitRecord:
        self.prepare(*command, **options)  # type: ignore[arg-type]
        assert self.supervise().wait(PATIENCE_S) == 0
        return self.end()

    def end(self) -> ExitRecord:
        record = self.folder.exit_record()
        assert record is not None
        return record

    @property
    def log(self) -> str:
        return self.folder.log.read_text()

    @property
    def pid(self) -> int:
        wait_for(lambda: self.folder.start_record() is not None)
        record = self.folder.start_record()
        assert record is not None
        return record.pid


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def case(tmp_path: Path):
    case = Case(tmp_path / "run")
    yield case
    for process in case.processes:
        process.kill()
        process.wait()
    case.folder.kill_remains()


def test_output_and_exit_code_are_kept(case: Case) -> None:
    end = case.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (end.code, end.reason) == (3, ExitReason.EXITED)
    assert case.log == "out\nerr\n"
    assert case.folder.condition() is RunCondition.ENDED


def test_a_signal_is_a_negative_code(case: Case) -> None:
    assert case.run("sh", "-c", "kill -9 $$").code == -9


def test_the_command_has_its_environment_folder_and_group(case: Case) -> None:
    case.run("sh", "-c", "echo $COLOUR; pwd; ps -o pgid= -o sid= -p $$; echo $$", COLOUR="blue")
    colour, folder, group, pid = case.log.splitlines()
    assert (colour, folder) == ("blue", str(case.folder.path / "work"))
    assert group.split() == [pid, pid]


def test_signals_reach_the_command_as_usual(case: Case) -> None:
    case.run("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33: make leaves them ignored, and nobody can reset them
    assert {int(line.split()[1], 16) & ~of_the_c_library for line in case.log.splitlines()} == {0}


@pytest.mark.parametrize(
    ("command", "workdir", "sentence"),
    [
        ("no-such-command", "", "the command was not found"),
        ("/etc/passwd", "", "the command cannot be run: Permission denied"),
        ("true", "/no/such/folder", "the working directory /no/such/folder cannot be used: No such file or directory"),
    ],
)
def test_a_command_that_cannot_begin_says_why(case: Case, command: str, workdir: str, sentence: str) -> None:
    end = case.run(command, workdir=workdir)
    assert (end.code, end.message) == (127, sentence)
    assert case.log == f"kaiwo: {sentence}\n"


def test_the_time_limit_stops_the_command(case: Case) -> None:
    end = case.run("sh", "-c", "echo begun; sleep 60", limit_s=1)
    assert (end.code, end.reason) == (-signal.SIGTERM, ExitReason.TIME_LIMIT)
    assert end.ended - end.started > 0.9
    assert is_in_time(end.ended - end.started, 5)


def test_a_stubborn_command_is_killed_after_the_grace(case: Case) -> None:
    end = case.run("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", limit_s=1, grace_s=0.3)
    assert (end.code, end.reason) == (-signal.SIGKILL, ExitReason.TIME_LIMIT)


def test_a_command_may_use_the_grace(case: Case) -> None:
    case.prepare("sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    process = case.supervise()
    wait_for(lambda: "ready" in case.log)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert (case.end().code, case.end().reason) == (0, ExitReason.STOPPED)
    assert "saved" in case.log


def test_a_stopped_process_can_be_ended(case: Case) -> None:
    case.prepare("sleep", "60")
    process = case.supervise()
    os.kill(case.pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE_S)
    assert case.end().reason is ExitReason.STOPPED


@pytest.mark.parametrize("escape", ["", "setsid "])
def test_what_the_command_leaves_behind_is_ended(case: Case, escape: str) -> None:
    case.run("sh", "-c", f"{escape}sleep 61 & echo $!; sleep 0.1")
    left = int(case.log)
    assert not is_alive(left, start_ticks(left))


def test_a_run_that_goes_on_is_not_begun_again(case: Case) -> None:
    case.prepare("sh", "-c", "echo once; sleep 60")
    first = case.supervise()
    wait_for(lambda: "once" in case.log)
    assert case.folder.condition() is RunCondition.RUNNING
    assert case.supervise().wait(PATIENCE_S) == IS_TAKEN
    first.send_signal(signal.SIGTERM)
    first.wait(PATIENCE_S)
    assert case.supervise().wait(PATIENCE_S) == IS_TAKEN
    assert case.log == "once\n"


def test_of_many_supervisors_one_runs_the_command(case: Case) -> None:
    case.prepare("sh", "-c", "echo once")
    results = sorted(process.wait(PATIENCE_S) for process in [case.supervise() for _ in range(8)])
    assert results == [0] + [IS_TAKEN] * 7
    assert case.log == "once\n"


def test_a_sealed_run_never_begins(case: Case) -> None:
    case.prepare("sh", "-c", "echo never")
    assert case.folder.condition() is RunCondition.NEVER_BEGAN
    assert case.folder.seal()
    assert case.supervise().wait(PATIENCE_S) == IS_TAKEN
    assert case.log == ""
    assert case.folder.end().reason is ExitReason.NEVER_STARTED


def test_a_run_that_began_cannot_be_sealed(case: Case) -> None:
    case.prepare("sleep", "60")
    case.supervise()
    wait_for(case.folder.start_record)
    assert not case.folder.seal()


def test_a_run_whose_supervisor_was_killed_is_lost_and_cleared_away(case: Case) -> None:
    case.prepare("sh", "-c", "setsid sleep 62 & echo $!; sleep 61 & echo $!; sleep 60")
    process = case.supervise()
    wait_for(lambda: case.log.count("\n") == 2)
    pids = [case.pid, *(int(line) for line in case.log.split())]
    ticks = [start_ticks(pid) for pid in pids]
    process.kill()
    process.wait()
    wait_for(lambda: case.folder.condition() is RunCondition.LOST)
    assert all(map(is_alive, pids, ticks))
    case.folder.record_loss()
    assert not any(map(is_alive, pids, ticks))
    assert case.folder.end().reason is ExitReason.LOST


def test_a_stranger_with_the_same_pid_is_left_alone(case: Case) -> None:
    case.prepare("true")
    with subprocess.Popen(["sleep", "60"]) as stranger:
        ticks = start_ticks(stranger.pid)
        for wrong in ({"ticks": ticks - 1}, {"boot": "another"}):
            start = {"supervisor": 1, "supervisor_ticks": 1, "pid": stranger.pid, "ticks": ticks, "boot": boot_id()}
            write_json(str(case.folder.path), "start.json", start | {"started": 0.0} | wrong)
            case.folder.kill_remains()
            assert stranger.poll() is None
        stranger.kill()
