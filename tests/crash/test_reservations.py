"""Reservations, and the places that were picked for them, are there after Kaiwo was killed."""

from pathlib import Path
from typing import Any

from tests.crash.product import Product, wait_for_no_supervisors
from tests.waiting import wait_until

MANIFEST = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: lab}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoReservation
metadata: {name: picked}
spec: {gpus: 6, owner: {queue: lab}}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoReservation
metadata: {name: exact}
spec: {nodes: [node-3], owner: {user: ada}}
"""


def reservations(product: Product) -> list[dict[str, Any]]:
    """What was reserved, without who uses it at the moment."""
    found: list[dict[str, Any]] = product.ask("GET", "/reservations")[1]["items"]
    return [{field: each[field] for field in each if field not in ("used_milli", "message")} for each in found]


def test_what_was_reserved_is_still_reserved_where_it_was(tmp_path: Path) -> None:
    product = Product(tmp_path / "home")
    product.start()
    try:
        assert product.ask("POST", "/manifests", MANIFEST)[0] == 200
        wait_until(lambda: all(not each["missing"] for each in reservations(product)), "the place to be picked")
        before = reservations(product)
        form = {"name": "theirs", "gpus": 4, "cpu": "1", "memory": "1Gi", "simulate": "10h", "preemptible": True}
        assert product.ask("POST", "/workloads", form)[0] == 201
        expiring = {**form, "name": "short", "gpus": 1, "queue": "lab", "expires": "60s"}  # three seconds of ours
        assert product.ask("POST", "/workloads", expiring)[0] == 201
        product.kill()
        product.start()
        wait_until(lambda: reservations(product) == before, "the reservations to be as before")
        wait_until(lambda: "default/short" in product.names("cancelled"), "the allocation to expire")
        assert "default/theirs" in product.names("waiting"), "six of twelve and four of twelve are not for it"
        mine = {**form, "name": "mine", "queue": "lab"}
        assert product.ask("POST", "/workloads", mine)[0] == 201
        wait_until(lambda: "default/mine" in product.names("running"), "the owner to run")
        for name in ("picked", "exact"):
            assert product.ask("DELETE", f"/reservations/{name}")[0] == 200
        wait_until(lambda: "default/theirs" in product.names("running"), "the others to run")
        product.kill()
        product.start()
        assert reservations(product) == []
        for name in ("theirs", "mine"):
            product.ask("DELETE", f"/workloads/default/{name}")
    finally:
        product.kill()
    wait_for_no_supervisors(product.home)
