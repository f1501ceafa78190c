"""Kaiwo is killed at random moments, and afterwards nothing is lost, run twice or given out twice."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kaiwo.clusters.local.store import Store
from kaiwo.model.program import State
from tests.conftest import ROOT
from tests.crash.audit import Books, audit
from tests.crash.jobs import expected_state, kind_of

KILLS = 50
SEED = 20
JOBS_A_ROUND = 3


class Killed:
    """The driver, from outside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.adopted = 0

    def start(self, round_: int, *options: str) -> subprocess.Popen[str]:
        jobs = str((round_ + 1) * JOBS_A_ROUND)
        command = [sys.executable, "-m", "tests.crash.driver", str(self.home), str(SEED), str(round_), jobs, *options]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def live_and_die(self, round_: int, after_s: float, does_wait: bool) -> None:
        """Let it live for a while, counted from when it says that it is up or from its very beginning; then kill it."""
        process = self.start(round_)
        assert process.stdout is not None
        if does_wait:
            self.adopted += int(process.stdout.readline().split()[1])
        time.sleep(after_s)  # the moment of death is the test's input, not a wait for anything
        assert process.poll() is None, "it died by itself"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def finish(self, round_: int) -> None:
        process = self.start(round_, "finish")
        assert process.wait(90) == 0
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_fifty_times_and_nothing_is_lost_or_doubled(tmp_path: Path, test_size: int) -> None:
    kills = KILLS * test_size
    chance = random.Random(SEED)
    killed = Killed(tmp_path)
    for round_ in range(kills):
        does_wait = chance.random() < 0.8
        spread_s = chance.choice((0.01, 0.05, 0.2, 0.4)) * chance.random()
        killed.live_and_die(round_, spread_s if does_wait else 0.15 + spread_s, does_wait or round_ == 0)
        assert audit(tmp_path) == [], f"after kill {round_ + 1}"
    killed.finish(kills)
    assert audit(tmp_path) == []
    check_effects(tmp_path)
    assert killed.adopted > kills / 5, "too few processes outlived their Kaiwo for this test to mean much"


def check_effects(home: Path) -> None:
    """What the jobs themselves wrote agrees with the books."""
    books = Books(home)
    accepted = set((home / "accepted").read_text().split())
    assert accepted <= set(books.lives), "an accepted workload is lost"
    states = {name: life.record.state for name, life in books.lives.items()}
    assert {name: state for name, state in states.items() if state is not expected_state(name)} == {}
    begun: Counter[str] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    attempts: Counter[tuple[str, str, str]] = Counter()
    for line in (home / "effects").read_text().splitlines():
        workload, pod, attempt, run, what = line.split()
        if what == "start":
            begun[run] += 1
            attempts[workload, pod, attempt] += 1
        else:
            ended[workload, pod] += 1
    assert [run for run, times in begun.items() if times > 1] == [], "a run began twice"
    assert [key for key, times in attempts.items() if times > 1] == [], "a pod ran twice in one attempt"
    # Work that somebody stopped may have come as far as its last line before; all other work did it exactly once.
    disturbed = set((home / "disturbed").read_text().split())
    for name, life in books.lives.items():
        if kind_of(name) in ("single", "share", "after", "gang"):
            counts = {ended[name, f"main-{index}"] for index in range(life.workload.pods)}
            assert counts == {1} or (name in disturbed and 0 not in counts), f"{name} did its work {counts} times"
    assert len(begun) > KILLS, "too few processes ran for this test to mean much"


def test_the_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    from kaiwo.clusters.lifecycle import Life, Placement, Run
    from kaiwo.clusters.world import World
    from kaiwo.model.program import Record
    from kaiwo.model.workload import Pod
    from tests.clusters.kinds import some_nodes, whole, work

    (tmp_path / "runs").mkdir()
    store = Store(tmp_path / "state.db")
    world = World()
    with world.changing(0) as change:
        change.put_node(some_nodes(1)[0])
        change.put_life(Life(Record(work("over"), state=State.SUCCEEDED)))
        change.put_life(Life(Record(work("running"), state=State.RUNNING)))
        for name in ("over", "ghost"):
            pod = Pod(f"default/{name}", "main-0", "node-1", devices=whole(0))
            change.put_pod(Placement(pod, Run(name, pod.workload, "main-0")))
        store.save(change)
    store.close()
    assert sorted(audit(tmp_path)) == [
        "default/ghost has pods but does not exist",
        "default/over is over and has pods",
        "default/running is running without pods",
        "device gpu-0 of node node-1 has not enough left",
    ]
