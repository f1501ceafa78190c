"""Workloads are changed in place through the API: a researcher lowers, an operator raises."""

from pathlib import Path
from typing import Any

import httpx

from tests.api.people import Person, person
from tests.api.test_own_work import people
from tests.api.world import World, world
from tests.audit_records import audit_of
from tests.waiting import run


async def set_fields(who: World | Person, *names: str, **fields: Any) -> httpx.Response:
    body = {"names": [f"default/{name}" for name in names], "fields": fields}
    return await (
        who.ask("POST", "/workloads/set", body) if isinstance(who, Person) else who.post("/workloads/set", body)
    )


async def results(who: World | Person, *names: str, **fields: Any) -> list[str]:
    answer = await set_fields(who, *names, **fields)
    assert answer.status_code == 200, answer.text
    return [each["done"] or each["problem"]["message"] for each in answer.json()["results"]]


def test_a_change_is_told_and_seen_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("a", gpus=4, hold=True, time="2h", priority=0)
            (done,) = await results(kaiwo, "a", priority=5, time=None, gpus=2, estimate="90m")
            assert done == (
                "workload default/a: size 4 GPUs -> 2 GPUs, priority 0 -> 5, time 2 h -> none, "
                "estimate none -> 1 h 30 min"
            )
            detail = (await kaiwo.get("/workloads/default/a")).json()
            assert (detail["summary"]["priority"], detail["estimate_s"]) == (5, 5400)
            assert await results(kaiwo, "a", priority=5) == ["workload default/a: unchanged"]
            assert await results(kaiwo, "a", hold=False) == ["workload default/a: released"]
            await kaiwo.until_state("a", "running")

    run(work())


def test_each_name_has_its_own_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("a", hold=True, priority=0)
            told = await results(kaiwo, "a", "ghost", priority=-3)
            assert told[0] == "workload default/a: priority 0 -> -3"
            assert "default/ghost does not exist" in told[1]

    run(work())


def test_bad_forms_are_refused_with_an_example(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            for body in ({}, {"names": [], "fields": {"priority": 1}}, {"names": ["default/a"]}, {"names": "a"}):
                answer = await kaiwo.post("/workloads/set", body)
                assert answer.status_code == 400
                assert '"fields": {"priority": 5}' in answer.json()["message"]
            answer = await kaiwo.post("/workloads/set", {"names": ["default/a"], "fields": {}})
            assert "it can have: priority, queue" in answer.json()["message"]

    run(work())


def test_a_researcher_lowers_and_an_operator_raises(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path, "operator", "viewer") as (_, who):
            ada, bob = who["ada"], who["bob"]
            await ada.submit("a", queue="vision", hold=True, gpus=4, time="2h", priority=0)
            assert "priority 0 -> -5" in (await results(ada, "a", priority=-5))[0]
            assert "time 2 h -> 1 h" in (await results(ada, "a", time="1h"))[0]
            assert "4 GPUs -> 2 GPUs" in (await results(ada, "a", gpus=2))[0]
            for fields in ({"priority": 0}, {"time": "2h"}, {"gpus": 4}, {"preemptible": False}):
                (told,) = await results(ada, "a", **fields)
                assert "may lower" in told
                assert "needs the role operator or admin" in told
            assert "may not submit into queue other" in (await results(ada, "a", queue="other"))[0]
            assert "belongs to user 'ada'" in (await results(bob, "a", priority=-6))[0]
            assert (await set_fields(who["viewer"], "a", priority=-6)).status_code == 403
            assert "priority -5 -> 9" in (await results(who["operator"], "a", priority=9))[0]
            assert "queue vision -> other" in (await results(who["operator"], "a", queue="other"))[0]

    run(work())


def test_the_audit_has_the_old_and_the_new_value(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            ada = await person(kaiwo, "ada", "operator")
            await ada.submit("a", hold=True, gpus=4, priority=0)
            await set_fields(ada, "a", priority=3, gpus=1)
            await set_fields(ada, "a", queue="nowhere")

    run(work())
    first, second = [record for record in audit_of(tmp_path) if record.action == "set"]
    assert (first.person, first.object, first.outcome) == ("ada", "workload/default/a", "done")
    assert (first.old["priority"], first.new["priority"]) == (0, 3)
    assert (first.old["gpu_milli"], first.new["gpu_milli"]) == (4000, 1000)
    assert (second.outcome, "queue nowhere does not exist" in second.detail) == ("refused", True)
