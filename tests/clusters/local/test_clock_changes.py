"""The system's clock is changed, by an hour or by decades: no duration changes, and nothing is forgotten at once."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.embedded.state import put_recovery
from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.local import cluster as cluster_module
from kaiwo.clusters.local.clock import ClockStart, SystemTime, describe_boot, start_of
from kaiwo.clusters.local.state_file import BACKUPS_KEPT, back_up_in, latest_backup
from kaiwo.model.node import NodeFailure
from kaiwo.model.recovery import FailureKind, Recovery, RecoveryWay
from kaiwo.model.reservation import Reservation
from kaiwo.model.workload import Phase, Pod
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from tests.clusters.kinds import some_nodes, whole, work
from tests.devices.amd_trees import Box, write_box
from tests.stepped_clock import SteppedClock, can_step_clocks
from tests.waiting import PATIENCE_S, run, wait_until

NOW_S = 1_800_000_000
DAY_S = 86_400
IN_2100_S = 4_102_444_800
STEPS_S = [3600, -3600, DAY_S, -DAY_S, IN_2100_S - NOW_S]
REAL = [replace(some_nodes(1)[0], name="box", labels={})]


class Machine:
    """Its clocks, and the Kaiwo in its home."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.wall_s, self.ticks_s, self.boot = home, float(NOW_S), 5000.0, "one"
        patch.setattr(cluster_module, "boot_id", lambda: self.boot)

    def start(self) -> LocalCluster:
        return LocalCluster(self.home, REAL, ticks=lambda: self.ticks_s, wall=lambda: self.wall_s)

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds
        self.ticks_s += seconds

    def reboot(self) -> None:
        self.boot, self.ticks_s = "two", 30.0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def fill(cluster: LocalCluster) -> None:
    """Work that ended 20 days ago, work that has run for an hour, and a reservation for tomorrow."""
    now_s = cluster.now_s()
    old = WorkloadRecord(work("old"), state=WorkloadState.SUCCEEDED, started_s=now_s - 21 * DAY_S,
                         ended_s=now_s - 20 * DAY_S)  # fmt: skip
    running = WorkloadRecord(work("running"), state=WorkloadState.RUNNING, attempt=1, started_s=now_s - 3600)
    pod = Pod("default/running", "main-0", "box", Phase.RUNNING, devices=whole(0), since_s=now_s - 3600)
    with cluster.state.transaction(now_s) as change:
        for record in (old, running):
            change.put_workload(TrackedWorkload(record))
        change.put_pod(PlacedRun(pod, Run("run", "default/running", "main-0", ends_s=now_s + 3600)))
        failure = NodeFailure(now_s - 60, True, 2, now_s - 60, now_s + 60)
        change.put_node(replace(change.state.nodes["box"], failure=failure))
        recovery = Recovery("default/running", now_s - 60, FailureKind.NODE, (), RecoveryWay.WAIT, (), 2)
        put_recovery(change, "default/running", recovery)
        change.put_reservation(Reservation("tomorrow", start_s=now_s + DAY_S, end_s=now_s + 2 * DAY_S))
        cluster._store.save(change)


def ages(cluster: LocalCluster) -> dict[str, int]:
    """How long ago things happened, by the cluster's clock."""
    now_s, state = cluster.now_s(), cluster.state
    old = state.workloads["default/old"].record
    placed = state.pods["default/running", "main-0"]
    times = {
        "ended": old.ended_s,
        "started": old.started_s,
        "runs since": placed.pod.since_s,
        "ends": placed.run.ends_s,
        "failed": state.nodes["box"].failure.since_s,
        "failed last": state.nodes["box"].failure.last_s,
        "rests until": state.nodes["box"].failure.out_until_s,
        "recovers": state.recoveries["default/running"].since_s,
    }
    return {name: now_s - at_s for name, at_s in times.items()}


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("is_while_running", [True, False])
def test_a_changed_clock_changes_no_duration_and_the_calendar_follows_it(
    machine: Machine, step_s: int, is_while_running: bool
) -> None:
    async def test() -> None:
        first = machine.start()
        fill(first)
        before = ages(first)
        if is_while_running:
            machine.wall_s += step_s
            assert await first.follow_system_clock() == step_s
            assert ages(first) == before, "while it runs no age changes"
            assert first.now_s() == machine.wall_s
        await first.close()
        if not is_while_running:
            machine.wall_s += step_s
        machine.sleep(10)
        second = machine.start()
        assert abs(second.now_s() - machine.wall_s) < 2
        for name, age_s in ages(second).items():
            assert abs(age_s - before[name] - 10) <= 5, name
        assert second.state.reservations["tomorrow"].start_s == NOW_S + DAY_S
        assert any("clock was set" in notice for notice in second.notices) is not is_while_running
        await second.transact(lambda transaction: None)
        assert "default/old" in second.state.workloads, "nothing is forgotten because of a step"
        await second.close()
        machine.wall_s -= step_s
        third = machine.start()
        for name, age_s in ages(third).items():
            assert abs(age_s - before[name] - 10) <= 10, f"{name}, after the clock was corrected"
        await third.close()

    run(test())


def test_a_clock_in_1970_is_not_believed(machine: Machine) -> None:
    async def test() -> None:
        first = machine.start()
        fill(first)
        before = ages(first)
        await first.close()
        machine.reboot()
        machine.wall_s = 100.0
        second = machine.start()
        assert ages(second) == before
        assert any("clock says 1970" in notice for notice in second.notices)
        await second.close()
        machine.wall_s = NOW_S + 50.0
        third = machine.start()
        assert abs(ages(third)["ended"] - before["ended"] - 50) <= 5
        await third.close()

    run(test())


@pytest.mark.parametrize("step_s", [-3600, -DAY_S])
def test_a_clock_that_was_set_back_over_a_reboot_moves_what_is_stored(machine: Machine, step_s: int) -> None:
    async def test() -> None:
        first = machine.start()
        fill(first)
        before = ages(first)
        await first.close()
        machine.reboot()
        machine.wall_s += step_s
        second = machine.start()
        assert abs(second.now_s() - machine.wall_s) < 2
        assert all(abs(age_s - before[name]) <= 5 for name, age_s in ages(second).items())
        await second.close()

    run(test())


def test_after_a_long_time_away_nothing_is_forgotten_before_a_day_has_passed(machine: Machine) -> None:
    """After a reboot nobody can tell a long absence from a clock that went wrong, so people have a day to notice."""

    async def test() -> None:
        first = machine.start()
        fill(first)
        await first.close()
        machine.reboot()
        machine.wall_s += 365 * DAY_S
        second = machine.start()
        assert any("If the clock is wrong" in notice for notice in second.notices)
        await second.transact(lambda transaction: None)
        assert "default/old" in second.state.workloads
        machine.sleep(DAY_S + 60)
        second._store_time()
        await second.transact(lambda transaction: None)
        assert "default/old" not in second.state.workloads
        await second.close()

    run(test())


def test_the_latest_backup_is_the_last_one_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    for year in ("2100", "2101"):
        (tmp_path / "backups" / f"state-{year}0101T000000.db").write_bytes(b"made when the clock was wrong")
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.execute("CREATE TABLE meta (key TEXT)")
    for _ in range(2 * BACKUPS_KEPT):
        made = back_up_in(tmp_path)
        assert latest_backup(tmp_path) == made
        assert made.exists()
    assert len(list((tmp_path / "backups").iterdir())) == BACKUPS_KEPT


def test_a_short_absence_and_drift_are_no_change_of_the_clock() -> None:
    now = SystemTime(NOW_S * 1000, "one", 500.0)
    boot = describe_boot(ClockStart(NOW_S * 1000), now)
    later = SystemTime((NOW_S + 3605) * 1000, "one", 4100.0)
    assert start_of(str(NOW_S * 1000), boot, True, later) == ClockStart((NOW_S + 3605) * 1000)
    earlier = SystemTime((NOW_S - 5) * 1000, "one", 501.0)
    assert start_of(str(NOW_S * 1000), boot, True, earlier).ms == NOW_S * 1000, "it never goes backwards"
    older = start_of(str(NOW_S * 1000), "", True, later)  # a state of an earlier Kaiwo
    assert older == ClockStart((NOW_S + 3605) * 1000, away_s=3605)


class SteppedKaiwo:
    """A real `kaiwo up` on a machine with a GPU, whose system clock can be changed while it runs."""

    def __init__(self, folder: Path) -> None:
        self.home, self.clock = folder / "home", SteppedClock(folder, for_children=True)
        self._root = write_box(folder / "box", Box(gpus=1))
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("KAIWO_")}
        self._env |= {"KAIWO_HOME": str(self.home)} | self.clock.env
        self._log = folder / "log"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """What it says at its start."""
        command = [sys.executable, "-m", "kaiwo.cli.main", "up", "--port", "0", "--root", str(self._root)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        assert said, self._log.read_text()
        assert re.search("Kaiwo is up", said[0])
        return "".join(said)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def kaiwo(self, *words: str) -> str:
        command = [sys.executable, "-m", "kaiwo.cli.main", *words]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def of(self, name: str) -> dict:  # type: ignore[type-arg]
        found: dict = json.loads(self.kaiwo("describe", name, "-o", "json"))["summary"]  # type: ignore[type-arg]
        return found


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedKaiwo]:
    if not can_step_clocks():
        pytest.skip("no C compiler, which makes the library that changes the clock of one process")
    kaiwo = SteppedKaiwo(tmp_path)
    yield kaiwo
    if kaiwo.process is not None and kaiwo.process.poll() is None:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            kaiwo.kaiwo("cancel", "long")
        kaiwo.kill()


@pytest.mark.slow
def test_a_real_kaiwo_is_killed_and_its_clock_changed_in_both_directions(stepped: SteppedKaiwo) -> None:
    stepped.start()
    stepped.kaiwo("submit", "old", "--gpus", "1", "--wait", "--", "true")
    stepped.kaiwo("submit", "long", "--gpus", "1", "--time", "1h", "--", "sleep", "600")
    wait_until(lambda: stepped.of("long")["state"] == "running", "it to run")
    for step_s in (3600, -3600, 40 * DAY_S, IN_2100_S - int(time.time()), -int(time.time()), 0):
        stepped.clock.set(step_s)
        stepped.kaiwo("submit", f"at{step_s}", "--", "true")  # while it runs
        stepped.kill()
        said = stepped.start()
        assert stepped.of("long")["state"] == "running", (step_s, said)
        assert stepped.of("old")["state"] == "succeeded", (step_s, said)
        stepped.kaiwo("submit", f"now{step_s}", "--wait", "--", "true")
    assert stepped.of("long")["attempt"] == 1


@pytest.mark.slow
def test_a_running_kaiwo_follows_its_clock_into_a_reservation_and_out_of_it(stepped: SteppedKaiwo) -> None:
    stepped.start()
    stepped.kaiwo("submit", "limited", "--time", "1h", "--", "sleep", "600")
    stepped.kaiwo("submit", "long", "--gpus", "1", "--retries", "9", "--", "sleep", "600")
    wait_until(lambda: stepped.of("long")["state"] == "running", "it to run")
    stepped.kaiwo("reservations", "create", "r", "--gpus", "1", "--for-user", "ada", "--start", "30m", "--yes")
    stepped.clock.set(3600)
    wait_until(lambda: stepped.of("long")["state"] == "waiting", "the reservation to begin")
    stepped.clock.set(0)
    wait_until(lambda: stepped.of("long")["state"] == "running", "the reservation to be of the future again")
    found = stepped.of("limited")
    assert (found["state"], found["attempt"]) == ("running", 1), "its hour has not passed"
    assert abs(found["started_s"] - time.time()) < 600, "people see the time of their clock"
    stepped.kaiwo("cancel", "limited")
