"""`kill -9` again and again during a defragmentation run: no move is begun twice, and no kept place is left over."""

import contextlib
import sqlite3
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.embedded.lifecycle import Run
from kaiwo.runtime.loop.replay import replay_range
from tests.conftest import SIZE
from tests.crash.audit import Books, audit
from tests.crash.product import GoneError, Product, wait_for_no_supervisors
from tests.waiting import wait_until

POLICY = "placement: spread\nmoves: {atOnce: 1}\n"
SLOW_TO_GO = ["sh", "-c", "trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.05; done"]
LIVES = 6
OVER = ("done", "aborted")


def status(product: Product) -> dict[str, Any]:
    return product.ask("GET", "/defragmentation")[1]["run"]  # type: ignore[no-any-return]


def starts_of(home: Path) -> dict[str, int]:
    """By workload, how many runs were begun for it."""
    found: dict[str, int] = {}
    with contextlib.closing(sqlite3.connect(f"file:{home / 'state.db'}", uri=True)) as db:
        for (data,) in db.execute("SELECT data FROM runs"):
            run = msgspec.msgpack.decode(data, type=Run)
            found[run.workload] = found.get(run.workload, 0) + 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("does_abort", [False, True])
@pytest.mark.parametrize("seed", range(SIZE))
def test_a_run_of_moves_survives_being_killed(tmp_path: Path, seed: int, does_abort: bool) -> None:
    random, policy = Random(seed), tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    product = Product(tmp_path / "home", options=("--policy", str(policy)))
    product.start()
    form = {"cpu": "1", "memory": "1Gi", "preemptible": True}
    try:
        for number in range(3):
            small = {**form, "name": f"small-{number}", "gpus": 1, "command": SLOW_TO_GO}
            assert product.ask("POST", "/workloads", small)[0] == 201
            wait_until(lambda name=f"default/small-{number}": name in product.names("running"), "small work to run")
        for number in range(2):
            large = {**form, "name": f"large-{number}", "gpus": 4, "simulate": "10h"}
            assert product.ask("POST", "/workloads", large)[0] == 201
        wait_until(lambda: product.ask("POST", "/defragmentation/plan", {})[1]["moves"] == 2, "a plan of two moves")
        code, begun = product.ask("POST", "/defragmentation/run", {})
        assert code == 201, begun
        moves = begun["run"]["moves"]
        assert moves == 2
        for life in range(LIVES):
            time.sleep(random.uniform(0.0, 0.5))  # the moment of the kill
            if does_abort and life == 1:
                with contextlib.suppress(GoneError):
                    product.ask("POST", "/defragmentation/abort")
            product.kill()
            product.start()
        wait_until(lambda: status(product)["state"] in OVER, "the run to end")
        wait_until(lambda: len(product.names("running")) == 3 + status(product)["moved"], "everything to run again")
        view = status(product)
        states = [move["state"] for step in view["steps"] for move in step["moves"]]
        assert set(states) <= {"moved", "kept"}, view
        assert does_abort or states == ["moved"] * moves
        product.kill()
        assert audit(product.home) == []
        assert Books(product.home).kept == [], "a place is still kept"
        started = starts_of(product.home)
        moved = {move["workload"] for step in view["steps"] for move in step["moves"] if move["state"] == "moved"}
        assert {name: count for name, count in started.items() if "small" in name} == {
            f"default/small-{number}": 2 if f"default/small-{number}" in moved else 1 for number in range(3)
        }, "each pod was started once, and once more for its move"
        assert all(each.is_same for each in replay_range(str(product.home), 1, 1_000_000))
        product.start()
        for name in product.names("running", "waiting"):
            product.ask("DELETE", f"/workloads/{name}")
        wait_until(lambda: not product.names("running", "stopping"), "all work to end")
    finally:
        product.kill()
    wait_for_no_supervisors(product.home)
