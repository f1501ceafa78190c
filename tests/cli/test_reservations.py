"""`kaiwo reservations` at a terminal, against a real `kaiwo up`."""

import json
from collections.abc import Iterator

import pytest

from tests.cli.test_end_to_end import QUEUES, Product

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kaiwo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    product = Product(tmp_path_factory.mktemp("home"))
    product("apply", "-f", "-", given=QUEUES)
    yield product
    if product.up.poll() is None:
        product.stop()


def test_a_reservation_is_made_listed_described_and_deleted(kaiwo: Product) -> None:
    made = kaiwo(
        "reservations", "create", "night", "--gpus", "4", "--model", "MI300X", "--for-queue", "lab", "--end", "8h"
    )
    assert (made.code, made.out) == (0, "reservation night created\n")
    listed = kaiwo("reservations").lines()
    assert listed[0].split() == ["NAME", "PHASE", "FOR", "GPUS", "USED", "STARTS", "ENDS"]
    assert listed[1].split()[:6] == ["night", "active", "queue", "lab", "4", "0"]
    assert "AT END" in kaiwo("reservations", "-o", "wide").lines()[0]
    assert kaiwo("reservations", "-o", "name").lines() == ["night"]
    assert kaiwo("get", "reservations", "--state", "pending", "-o", "name").lines() == []
    page = json.loads(kaiwo("reservations", "-o", "json").out)
    assert page == kaiwo.api("/reservations")
    assert "name: night" in kaiwo("reservations", "-o", "yaml").out
    for words in (("reservations", "describe", "night"), ("describe", "reservation", "night")):
        told = kaiwo(*words).out
        assert "for:          queue lab" in told
        assert "at the end:   its owner's workloads continue" in told
    assert kaiwo("reservations", "delete", "night").out == "reservation night deleted\n"
    assert kaiwo("reservations", "delete", "night").code == 1


def test_work_waits_for_its_reservation_and_is_told_whose_the_gpus_are(kaiwo: Product) -> None:
    kaiwo("reservations", "create", "all", "--node", "node-1", "--node", "node-2", "--for-user", "ada")
    kaiwo("submit", "theirs", "--gpus", "1", "--simulate", "1h")
    why = kaiwo("why", "theirs").out
    assert "reservation 'all' keeps GPUs that it could use for user ada without an end" in why
    kaiwo("submit", "hers", "--gpus", "1", "--user", "ada", "--simulate", "1h", "--expires", "1h")
    assert kaiwo("wait", "hers", "--for", "running", "--timeout", "20").code == 0
    assert "its allocation is granted until" in kaiwo("why", "hers").out
    assert "its GPUs are released then" in kaiwo("describe", "hers").out
    kaiwo("reservations", "delete", "all")
    assert kaiwo("wait", "theirs", "--for", "running", "--timeout", "20").code == 0
    kaiwo("cancel", "theirs", "hers")


def test_slips_are_told_with_the_way_out(kaiwo: Product) -> None:
    wrong = kaiwo("reservations", "night")
    assert wrong.code == 2
    assert "kaiwo reservations describe night" in wrong.err
    assert kaiwo("reservations", "create", "x").code == 2
    assert "exactly one of gpus" in kaiwo("reservations", "create", "x").err
    assert "like node-1/gpu-0" in kaiwo("reservations", "create", "x", "--device", "gpu-0").err
    assert kaiwo("reservations", "create", "x", "--gpus", "1", "--for-queue", "ghost").code == 3
    assert kaiwo("reservations", "describe", "ghost").code == 1
    dry = kaiwo("reservations", "create", "x", "--gpus", "1", "--dry-run")
    assert dry.out == "reservation x created (dry run)\n"
    assert kaiwo("reservations", "-o", "name").lines() == []


def test_it_asks_before_it_stops_running_work(kaiwo: Product) -> None:
    kaiwo("submit", "busy", "--gpus", "1", "--simulate", "1h")
    assert kaiwo("wait", "busy", "--for", "running", "--timeout", "20").code == 0
    whole = ("reservations", "create", "whole", "--node", "node-1", "--node", "node-2", "--for-user", "ada")
    asked = kaiwo(*whole)
    assert asked.code == 3
    assert "stops 1 running workload: default/busy" in asked.err
    assert "--yes" in asked.err
    assert kaiwo("reservations", "-o", "name").lines() == []
    assert kaiwo(*whole, "--yes").out == "reservation whole created\n"
    kaiwo("reservations", "delete", "whole")
    kaiwo("cancel", "busy")
