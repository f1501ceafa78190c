"""The product is killed at random moments, and afterwards nothing is lost, run twice or given out twice."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import msgspec
import pytest

from kaiwo.clusters.embedded.lifecycle import PlacedRun, Run, TrackedWorkload
from kaiwo.clusters.embedded.state import EmbeddedState
from kaiwo.clusters.local.run_folder import RunFolder, RunSpec
from kaiwo.clusters.local.sqlite_store import Store
from kaiwo.model.plan import Nomination
from kaiwo.model.workload import Pod
from kaiwo.model.workload_record import WorkloadRecord, WorkloadState
from tests.clusters.kinds import some_nodes, whole, work
from tests.crash.audit import Books, audit, span_of
from tests.crash.effects import check_effects
from tests.crash.people import People
from tests.crash.product import Product, supervisors, wait_for_no_supervisors

KILLS = 50
SEED = int(os.environ.get("STORM_SEED", "20"))
JOBS_A_ROUND = 4


class Fate:
    """Decides when to kill what."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.chance = random.Random(SEED)
        self.killed_at: list[float] = []
        self.lost: set[str] = set()  # workloads of which a supervisor was killed

    def live_and_die(self, people: People, jobs: int) -> None:
        """One life: some end while they begin, most while people work; some take a supervisor along."""
        chance, product = self.chance, self.product
        is_cut_short = self.killed_at and chance.random() < 0.15
        product.start(does_wait=not is_cut_short)
        # The moment of death is the test's input, not a wait for anything.
        if is_cut_short:
            time.sleep(0.1 + 0.7 * chance.random())
            product.kill()
        else:
            with people.at_work(product, jobs):
                life_s = chance.choice((0.05, 0.2, 0.5, 1.0)) * chance.random()
                time.sleep(life_s / 2)
                if chance.random() < 0.2:
                    self.kill_a_supervisor()
                time.sleep(life_s / 2)
                product.kill()
        self.killed_at.append(time.time())
        if chance.random() < 0.1:
            self.kill_a_supervisor()

    def kill_a_supervisor(self) -> None:
        """Whichever it hits: one that begins, one whose command runs, or one that is about to end."""
        found = supervisors(self.product.home)
        if not found:
            return
        pid = self.chance.choice(sorted(found))
        spec = msgspec.json.decode((found[pid].path / "run.json").read_bytes(), type=RunSpec)
        self.lost.add(spec.workload)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(2400)
def test_kaiwo_up_is_killed_fifty_times_and_nothing_is_lost_or_doubled(tmp_path: Path, test_size: int) -> None:
    home, kills = tmp_path / "home", KILLS * test_size
    home.mkdir(mode=0o700)
    product, people = Product(home), People(tmp_path / "effects", SEED)
    fate = Fate(product)
    for round_ in range(kills):
        fate.live_and_die(people, (round_ + 1) * JOBS_A_ROUND)
        assert audit(home) == [], f"after kill {round_ + 1}"
        assert people.surprises == [], f"after kill {round_ + 1}"
    product.start()
    people.finish(product)
    product.stop()
    wait_for_no_supervisors(home)
    assert audit(home) == []
    assert people.surprises == []
    assert list(check_effects(home, people, fate.lost)) == []
    check_it_meant_something(home, people, fate)


def check_it_meant_something(home: Path, people: People, fate: Fate) -> None:
    """Enough of everything happened for the test to prove something."""
    kills = len(fate.killed_at)
    spans = [span for run in Books(home).runs if (span := span_of(RunFolder(home / "runs" / run)))]
    survivors = sum(begin < moment < end for begin, end in spans for moment in fate.killed_at)
    counts = {
        "kills": kills,
        "workloads": len(people.accepted),
        "runs": len(spans),
        "outlived their Kaiwo": survivors,
        "lost their supervisor": len(fate.lost),
        "stopped": len(people.disturbed),
        "cancelled": len(people.cancelled),
    }
    print(counts)
    assert len(people.accepted) > kills
    assert len(spans) > kills
    assert survivors > kills / 2
    assert len(fate.lost) > kills / 20
    assert len(people.disturbed) > kills / 20


def test_the_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "journal").mkdir()
    store = Store(tmp_path / "state.db")
    world = EmbeddedState()
    with world.transaction(0) as change:
        change.put_node(some_nodes(1)[0])
        change.put_workload(TrackedWorkload(WorkloadRecord(work("over"), state=WorkloadState.SUCCEEDED)))
        change.put_workload(TrackedWorkload(WorkloadRecord(work("running"), state=WorkloadState.RUNNING)))
        for name in ("over", "ghost"):
            pod = Pod(f"default/{name}", "main-0", "node-1", devices=whole(0))
            change.put_pod(PlacedRun(pod, Run(name, pod.workload, "main-0")))
        change.put_nominations("default/over", (Nomination("default/over", "main-0", "node-1"),))
        store.save(change)
    store.close()
    assert sorted(audit(tmp_path)) == [
        "default/ghost has pods but does not exist",
        "default/over is over and has pods",
        "default/running is running without pods",
        "device gpu-0 of node node-1 has not enough left",
        "space is kept for default/over, which wants none",
    ]
