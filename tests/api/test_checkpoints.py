"""Running work says that it has saved what it did."""

from pathlib import Path
from typing import Any

import pytest

from kaiwo.runtime.loop.replay import replay
from tests.api.world import WRONG, world
from tests.audit_records import done_by_people
from tests.waiting import run, until

PATH = "/workloads/default/train/checkpoint"


def test_it_is_said_kept_shown_and_in_the_log(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=1, simulate="1h", preemptionDelay="10m", restartCost="5m")
            await kaiwo.until_state("train", "running")
            began_s = kaiwo.cluster.now_s()
            answer = await kaiwo.post(PATH)
            assert answer.status_code == 200, answer.text
            detail = (await kaiwo.get("/workloads/default/train")).json()
            assert (detail["preemption_delay_s"], detail["restart_s"]) == (600, 300)
            assert began_s <= detail["checkpoint_s"] <= kaiwo.cluster.now_s()
            # The picture that the next cycle decides on knows it when the answer comes.
            assert kaiwo.loop.state.workloads["default/train"].checkpoint_s == detail["checkpoint_s"]
            said = answer.json()["done"]
            assert said[0].startswith("workload default/train last saved its work at 20")

    run(work())
    assert ("checkpoint", "workload/default/train") in done_by_people(tmp_path)


def test_a_moment_may_be_named_and_one_to_come_is_now(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=1, simulate="1h")
            await kaiwo.until_state("train", "running")
            at_s = kaiwo.cluster.now_s() - 100
            for at in (at_s, str(at_s)):
                assert (await kaiwo.post(PATH, {"at": at})).status_code == 200
                assert kaiwo.cluster.record("default/train").workload.checkpoint_s == at_s
            assert (await kaiwo.post(PATH, {"at": "2999-01-01T00:00:00Z"})).status_code == 200
            assert kaiwo.cluster.record("default/train").workload.checkpoint_s <= kaiwo.cluster.now_s()

    run(work())


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"at": "soon"}, "whole seconds since 1970"),
        ({"at": None}, "whole seconds since 1970"),
        ({"at": True}, "whole seconds since 1970"),
        ({"when": 5}, "there is no field 'when'"),
        ([], "not a mapping"),
    ],
)
def test_a_slip_is_told_and_changes_nothing(tmp_path: Path, body: Any, word: str) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=1, simulate="1h")
            await kaiwo.until_state("train", "running")
            answer = await kaiwo.post(PATH, body)
            assert answer.status_code in (400, 422), answer.text
            assert word in answer.json()["message"]
            assert kaiwo.cluster.record("default/train").workload.checkpoint_s == 0

    run(work())


def test_it_takes_the_token_a_workload_and_work_that_ran(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", hold=True)
            assert (await kaiwo.client.post(f"/api/v1{PATH}", headers=WRONG)).status_code == 401
            assert (await kaiwo.post("/workloads/default/ghost/checkpoint")).status_code == 404
            refused = await kaiwo.post(PATH)
            assert refused.status_code == 409
            assert "has not run yet" in refused.json()["message"]

    run(work())


@pytest.mark.parametrize("saved", ["first", "second"])
def test_who_saved_lately_is_stopped_for_others(tmp_path: Path, saved: str) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            for name in ("first", "second"):
                await kaiwo.submit(name, gpus=4, simulate="1h", priority=1)
                await kaiwo.until_state(name, "running")
            began_s = kaiwo.cluster.now_s()
            await until(lambda: kaiwo.cluster.now_s() > began_s + 1, "work that can be lost")
            assert (await kaiwo.post(f"/workloads/default/{saved}/checkpoint")).status_code == 200
            await kaiwo.submit("urgent", gpus=4, simulate="1h", priority=9)
            await kaiwo.until_state("urgent", "running")
            states = {name: await kaiwo.state_of(name) for name in ("first", "second")}
            assert states.pop(saved) == "waiting"
            assert [*states.values()] == ["running"]
            assert kaiwo.loop.last_cycle is not None
            numbers.extend(range(1, kaiwo.loop.last_cycle.number + 1))

    numbers: list[int] = []
    run(work())
    assert numbers
    for number in numbers:  # the journal knows what was saved, so each cycle decides the same again
        result = replay(str(tmp_path), number)
        assert result.now == result.then, number


def test_who_is_patient_stops_nobody_before_its_time(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("old", gpus=8, simulate="1h", priority=1)
            await kaiwo.until_state("old", "running")
            await kaiwo.submit("patient", gpus=8, simulate="1h", priority=9, preemptionDelay="2s")
            asked_s = kaiwo.cluster.record("default/patient").workload.submitted_s
            await kaiwo.until_state("patient", "running")
            assert kaiwo.cluster.record("default/patient").started_s >= asked_s + 2

    run(work())
