"""Many workloads steered with one request: one change, one answer for each, and the same rights as for a single one."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import WRONG, world
from tests.audit_records import audit_of
from tests.waiting import is_in_time, run


def test_each_name_has_its_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("done", command=["true"])
            await kaiwo.until_state("done", "succeeded")
            await kaiwo.submit("a", hold=True)
            names = ["default/a", "default/done", "default/ghost", "no name", "default/a"]
            answer = await kaiwo.post("/workloads/cancel", {"names": names})
            assert answer.status_code == 200
            results = {each["name"]: each for each in answer.json()["results"]}
            assert list(results) == names[:4]
            assert results["default/a"] == {
                "name": "default/a",
                "done": "workload default/a cancelled",
                "problem": None,
            }
            assert results["default/done"]["problem"]["kind"] == "refused"
            assert results["default/ghost"]["problem"]["kind"] == results["no name"]["problem"]["kind"] == "not-found"
            assert await kaiwo.state_of("a") == "cancelled"

    run(work())
    cancelled = [each for each in audit_of(tmp_path) if each.action == "cancel"]
    assert [(each.object, each.outcome) for each in cancelled if each.outcome == "done"] == [
        ("workload/default/a", "done")
    ]
    assert {each.object for each in cancelled if each.outcome == "refused"} == {
        "workload/default/done", "workload/default/ghost", "workload/no name",
    }  # fmt: skip


def test_hold_release_and_requeue_take_many_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=0) as kaiwo:
            await kaiwo.submit("sweep", array="0-2", gpus=1, simulate="1h")
            names = [f"default/sweep-{index}" for index in range(3)]
            for verb, state in (
                ("hold", "held"),
                ("release", "waiting"),
                ("cancel", "cancelled"),
                ("requeue", "waiting"),
            ):
                answer = await kaiwo.post(f"/workloads/{verb}", {"names": names})
                assert [each["problem"] for each in answer.json()["results"]] == [None] * 3
                assert {kaiwo.cluster.record(name).state for name in names} == {state}

    run(work())


@pytest.mark.parametrize(
    "body", [{}, {"names": []}, {"names": "a"}, {"names": [1]}, {"names": ["x"] * 1001}, {"name": []}]
)
def test_a_strange_list_changes_nothing(tmp_path: Path, body: Any) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            answer = await kaiwo.post("/workloads/cancel", body)
            assert answer.status_code == 400
            assert "1 to 1000 workloads" in answer.json()["message"]

    run(work())


def test_it_takes_the_token(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("a", hold=True)
            refused = await kaiwo.client.post("/api/v1/workloads/cancel", json={"names": ["default/a"]}, headers=WRONG)
            assert refused.status_code == 401
            assert await kaiwo.state_of("a") == "held"

    run(work())


@pytest.mark.serial
def test_ten_thousand_are_cancelled_within_the_limit_of_changes(tmp_path: Path) -> None:
    async def work() -> float:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("sweep", array="0-9999", gpus=8, simulate="1h")
            began = time.monotonic()
            for at in range(0, 10_000, 1000):
                names = [f"default/sweep-{index}" for index in range(at, at + 1000)]
                answer = await kaiwo.post("/workloads/cancel", {"names": names})
                assert answer.status_code == 200
            took_s = time.monotonic() - began
            assert {record.state for record in kaiwo.cluster.records()} == {"cancelled"}
            return took_s

    assert is_in_time(run(work()), 3)
