"""Faults at random moments, all kinds together: nothing acknowledged is lost, run twice or allocated twice."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.local.run_folder import RunFolder
from tests.crash.audit import Books, audit, span_of
from tests.crash.effects import Effects, check_effects
from tests.crash.faults import Faults, damage, small_disk
from tests.crash.people import People
from tests.crash.product import Product, wait_for_no_supervisors
from tests.stepped_clock import SteppedClock
from tests.waiting import PATIENCE_S, wait_until

SEED = int(os.environ.get("STORM_SEED", "15"))
KILLS = 10
JOBS_A_ROUND = 5
LONGEST_S = 2.0  # of a fault
VERY_LONG_S = 15.0  # longer than a connection may be silent
DAMAGES = 10
BUSY_S = 0.1


class StormyProduct(Product):
    """Asks again when Kaiwo says that it cannot store anything now. Then it has stored nothing: see Store.save."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        super().__init__(home, env, ("--keep-free", "1M"))
        self.refusals: list[str] = []

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        while True:
            status, answer = super().ask(method, path, body)
            if status != 503:
                return status, answer
            self.refusals.append(answer["message"])
            time.sleep(BUSY_S)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(3600)
def test_in_a_storm_of_faults_nothing_is_lost_or_doubled(tmp_path: Path, test_size: int) -> None:
    home, kills, chance = tmp_path / "disk", KILLS * test_size, random.Random(SEED)
    with small_disk(home, "64m") as has_small_disk:
        clock = SteppedClock(tmp_path)
        product, people = StormyProduct(home, clock.env), People(tmp_path / "effects", SEED)
        faults = Faults(home, clock, has_small_disk, chance)
        for round_ in range(kills):
            product.start()
            with people.at_work(product, (round_ + 1) * JOBS_A_ROUND):
                for _ in range(chance.randrange(1, 4)):
                    time.sleep(chance.random() / 4)
                    is_long = test_size > 1 and chance.random() < 0.1
                    faults.cause_one(product.pid, VERY_LONG_S if is_long else LONGEST_S)
                product.kill()
            assert audit(home) == [], f"after kill {round_ + 1}"
            assert people.surprises == [], f"after kill {round_ + 1}"
        product.start()
        people.finish(product)
        product.stop()
        wait_for_no_supervisors(home)
        assert audit(home) == []
        assert people.surprises == []
        assert list(check_effects(home, people, set(), has_small_disk)) == []
        runs = sum(span_of(RunFolder(home / "runs" / run)) is not None for run in Books(home).runs)
        print({"kills": kills, **faults.counts, "workloads": len(people.accepted), "runs": runs,
               "asked again": len(product.refusals)})  # fmt: skip
        assert len(people.accepted) > kills
        assert all("disk" in why or "room" in why or str(home) in why for why in product.refusals), product.refusals


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(3600)
def test_whatever_is_damaged_a_refusal_names_the_file_and_the_way_out_and_nothing_runs_twice(
    tmp_path: Path, test_size: int
) -> None:
    """Each time a job runs, and a backup has all that was acknowledged; then Kaiwo is killed, and a file is damaged."""
    home, effects, chance = tmp_path / "home", tmp_path / "effects", random.Random(SEED)
    home.mkdir(mode=0o700)
    product = Product(home)
    accepted, refused, done = [], 0, ""
    counts = {"state.db": 0, "journal": 0}

    def kaiwo(*words: str) -> str:
        command = [sys.executable, "-m", "kaiwo.cli.main", *words, "--home", str(home)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    product.start()
    for number in range(DAMAGES * test_size):
        name = f"single-{number}"
        line = f'echo "$KAIWO_WORKLOAD $KAIWO_POD $KAIWO_ATTEMPT $KAIWO_RUN %s" >> {effects}'
        command = ["sh", "-c", f"{line % 'start'}; sleep 3; {line % 'end'}"]
        status, answer = product.ask("POST", "/workloads", {"name": name, "gpus": 1, "command": command})
        assert status == 201, answer
        accepted.append(f"default/{name}")
        wait_until(lambda name=name: f"default/{name}" in product.names("running"), f"{name} to run")
        kaiwo("backup")
        product.kill()
        assert audit(home) == [], done
        files = {"state.db": sorted(home.glob("state.db*")), "journal": sorted((home / "journal").glob("*.journal"))}
        kind = chance.choice(sorted(files))
        counts[kind] += 1
        done = damage(chance.choice(files[kind]), chance)
        if why := product.refusal():
            refused += 1
            assert str(home / "state.db") in why, (done, why)
            assert "kaiwo restore" in why, (done, why)
            kaiwo("restore")
            product.start()
        known = set(product.names("running", "succeeded", "stopping", "starting", "waiting"))
        assert known >= set(accepted), done
    wait_until(lambda: len(product.names("succeeded")) == len(accepted), "all work to end")
    product.stop()
    wait_for_no_supervisors(home)
    assert audit(home) == []
    lines = Effects(effects)
    assert {key[0]: count for key, count in lines.attempts.items()} == dict.fromkeys(accepted, 1)
    assert {key[0]: count for key, count in lines.ended.items()} == dict.fromkeys(accepted, 1)
    print({**counts, "refused to start": refused, "workloads": len(accepted)})
