"""Space that was kept for a workload is still its own after Kaiwo was killed."""

import sqlite3
from pathlib import Path
from typing import Any

from tests.crash.product import Product, wait_for_no_supervisors
from tests.waiting import wait_until

QUEUES = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: rich}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: poor}
spec: {resources: {gpu: {quota: 4, limit: 4}}}
"""
STUBBORN = ["sh", "-c", "trap '' TERM; sleep 300 & wait; wait"]  # until it is killed, ten seconds after the word to go


def kept(home: Path) -> list[str]:
    """The workloads for which the store keeps space."""
    with sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True) as db:
        return [name for (name,) in db.execute("SELECT workload FROM kept ORDER BY workload")]


def submit(product: Product, name: str, queue: str, **fields: Any) -> None:
    form = {"name": name, "gpus": 4, "cpu": "1", "memory": "1Gi", "queue": queue, **fields}
    status, answer = product.ask("POST", "/workloads", form)
    assert status == 201, answer


def test_whoever_was_promised_the_space_gets_it_and_nobody_before(tmp_path: Path) -> None:
    product = Product(tmp_path / "home")
    product.start()
    try:
        promise_space(product)
        product.kill()
        product.start()
        used = product.ask("GET", "/queues/poor")[1]["gpu_milli"]["used"]
        assert used == 4000, "the space counts as used as soon as Kaiwo is back"
        wait_until(lambda: "default/promised" in product.names("running"), "the promised to run")
        assert "default/late" in product.names("waiting")
        assert len(product.names("running")) == 3, "one had to go, and no other"
        assert kept(product.home) == []
        for name in ("a", "b", "c", "promised", "late"):
            product.ask("DELETE", f"/workloads/default/{name}")
        wait_until(lambda: not product.names("waiting", "starting", "running", "stopping"), "the end of all")
    finally:
        product.kill()
    wait_for_no_supervisors(product.home)


def promise_space(product: Product) -> None:
    """The rich run on all there is; one of them must go for a poor one, and takes its time."""
    assert product.ask("POST", "/manifests", QUEUES)[0] == 200
    for name in ("a", "b", "c"):
        submit(product, name, "rich", command=STUBBORN)
    wait_until(lambda: len(product.names("running")) == 3, "the rich to run")
    submit(product, "promised", "poor", simulate="10h", preemptible=False)
    wait_until(lambda: kept(product.home) == ["default/promised"], "the space to be kept")
    assert len(product.names("stopping")) == 1
    # More important, and in the same queue: only the promise, which fills the queue's limit, stands before it.
    submit(product, "late", "poor", priority=1000, simulate="10h")
