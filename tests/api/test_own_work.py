"""What a role holds: one's own work, one's own queues, and nothing of others that is not for all to see."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.embedded.user_actions import EmbeddedWork
from tests.api.people import Person, person
from tests.api.world import World, world
from tests.waiting import run, until

QUEUES = """
kind: KaiwoQueue
metadata: {name: lab}
spec: {}
---
kind: KaiwoQueue
metadata: {name: vision}
spec: {parentQueue: lab}
---
kind: KaiwoQueue
metadata: {name: other}
spec: {}
"""
SECRET = "planted-secret-of-bob"
COMMAND = ["sh", "-c", f"echo {SECRET}; sleep 600"]
ALL = ("cancel", "hold", "release", "requeue")


@contextlib.asynccontextmanager
async def people(home: Path, *roles: str) -> AsyncIterator[tuple[World, dict[str, Person]]]:
    """Queues lab (with vision below it) and other; bob and ada are users of lab, and one person for each role."""
    async with world(home) as kaiwo:
        answer = await kaiwo.post("/manifests", QUEUES)
        assert answer.status_code == 200, answer.text
        found = {name: await person(kaiwo, name, "user", "lab") for name in ("ada", "bob")}
        for role in roles:
            found[role] = await person(kaiwo, role, role)
        try:
            yield kaiwo, found
        finally:
            names = [record.workload.name for record in kaiwo.cluster.records() if not record.state.is_over]
            if names:  # commands would outlive the test
                await kaiwo.post("/workloads/cancel", {"names": names})
                await until(lambda: all(each.state.is_over for each in kaiwo.cluster.records()), "all work to end")


async def running_work_of_bob(kaiwo: World, bob: Person) -> None:
    answer = await bob.submit("train", queue="vision", gpus=1, command=COMMAND, env={"KEY": SECRET})
    assert answer.status_code == 201, answer.text
    await kaiwo.until_state("train", "running")


def test_work_is_submitted_in_ones_own_name_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path, "operator") as (kaiwo, who):
            ada = who["ada"]
            assert (await ada.submit("mine", queue="vision", hold=True)).status_code == 201
            assert kaiwo.cluster.record("default/mine").workload.user == "ada"
            assert (await ada.submit("named", queue="vision", user="ada", hold=True)).status_code == 201
            for claimed in ("bob", kaiwo.context.access.owner.name, "", "Ada", "ada "):
                refused = await ada.submit("claimed", queue="vision", user=claimed, hold=True)
                assert refused.status_code == 403, (claimed, refused.text)
            assert "may submit only in their own name" in refused.json()["message"]
            for metadata in (
                "annotations: {kaiwo.ai/user: bob}",
                "labels: {kaiwo.silogen.ai/user: bob}\n  annotations: {}",
            ):
                text = pod("claimed", "vision", metadata)
                assert await ada.status("POST", "/manifests", text) == 403
            assert (await who["operator"].submit("for-bob", queue="vision", user="bob", hold=True)).status_code == 201
            assert kaiwo.cluster.record("default/for-bob").workload.user == "bob"

    run(work())


def pod(name: str, queue: str, metadata: str = "") -> str:
    container = "{name: main, image: x, command: [sleep, '600']}"
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  {metadata or 'annotations: {}'}\n"
        f"  namespace: default\nspec:\n  containers: [{container}]\n"
    ).replace("annotations: {", f"annotations: {{kaiwo.ai/queue: {queue}, ")


def test_a_user_submits_into_the_queues_of_the_token_and_those_below(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path, "viewer") as (kaiwo, who):
            ada = who["ada"]
            wanted = {"lab": 409, "vision": 201, "other": 403, "default": 403, "nowhere": 403}
            for queue, status in wanted.items():
                answer = await ada.submit(f"in-{queue}", queue=queue, hold=True)
                assert answer.status_code == status, answer.text
            refused = (await ada.submit("x", hold=True)).json()["message"]
            assert "ada may not submit into queue default, only into lab" in refused
            assert f"ask {kaiwo.context.access.owner.name}" in refused
            everywhere = await person(kaiwo, "eve", "user", "*")
            assert (await everywhere.submit("e", queue="other", hold=True)).status_code == 201
            told = (await who["viewer"].submit("v", queue="vision")).json()["message"]
            assert told.startswith(
                "viewer has the role viewer, which may not submit or change work; this needs the role"
            )
            assert f"user or operator or admin: ask {kaiwo.context.access.owner.name}" in told

    run(work())


def test_the_work_of_others_is_changed_by_operators_only(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path, "viewer", "operator") as (kaiwo, who):
            ada, bob = who["ada"], who["bob"]
            assert (await bob.submit("bobs", queue="vision", hold=True)).status_code == 201
            assert (await ada.submit("adas", queue="vision", hold=True)).status_code == 201
            before = kaiwo.cluster.record("default/bobs")
            for each in (ada, who["viewer"]):
                assert await each.status("DELETE", "/workloads/default/bobs") == 403
                for verb in ("hold", "release", "requeue", "checkpoint"):
                    assert await each.status("POST", f"/workloads/default/bobs/{verb}") == 403
                assert await each.status("POST", "/manifests/delete", pod("bobs", "vision")) == 403
                assert await each.status("POST", "/manifests", pod("bobs", "vision")) == 403
            for verb in ALL:
                answer = await ada.ask("POST", f"/workloads/{verb}", {"names": ["default/bobs", "default/none"]})
                problems = [each["problem"]["kind"] for each in answer.json()["results"]]
                assert problems == ["forbidden", "not-found"], answer.text
            assert kaiwo.cluster.record("default/bobs") == before
            refused = (await ada.ask("DELETE", "/workloads/default/bobs")).json()["message"]
            assert "belongs to 'bob'" in refused
            assert "needs the role operator or admin: ask" in refused
            mixed = await ada.ask("POST", "/workloads/cancel", {"names": ["default/adas", "default/bobs"]})
            assert [bool(each["done"]) for each in mixed.json()["results"]] == [True, False]
            assert await bob.status("POST", "/workloads/default/bobs/release") == 200
            assert await who["operator"].status("DELETE", "/workloads/default/bobs") == 200

    run(work())


def test_the_details_say_whether_one_may_change_it_as_the_server_does(tmp_path: Path) -> None:
    """The page shows its buttons by this answer, so it must be that of the routes themselves."""

    async def work() -> None:
        async with people(tmp_path, "viewer", "operator", "admin") as (_, who):
            for owner in ("ada", "bob"):
                assert (await who[owner].submit(f"{owner}s", queue="vision", hold=True)).status_code == 201
            answers = {}
            for name, each in who.items():
                for other in ("adas", "bobs"):
                    detail = (await each.ask("GET", f"/workloads/default/{other}")).json()
                    status = await each.status("POST", f"/workloads/default/{other}/hold")
                    assert detail["may_change"] is (status != 403), (name, other, status)
                    answers[name, other] = detail["may_change"]
            assert answers["viewer", "adas"] is answers["ada", "bobs"] is False
            assert answers["ada", "adas"] is answers["operator", "bobs"] is answers["admin", "adas"] is True

    run(work())


def test_queues_reservations_and_plans_in_a_manifest_need_the_right_of_their_route(tmp_path: Path) -> None:
    reservation = 'kind: KaiwoReservation\nmetadata: {name: night}\nspec: {gpus: 1, end: "2099-01-31T18:00:00Z"}\n'
    queue = "kind: KaiwoQueue\nmetadata: {name: mine}\nspec: {}\n"
    rule = "[{selector: {matchLabels: {a: b}}, profile: {dcmProfileName: cpx-nps1}}]"
    plan = f"kind: PartitioningPlan\nmetadata: {{name: p}}\nspec: {{rules: {rule}}}\n"

    async def work() -> None:
        async with people(tmp_path, "viewer", "operator", "admin") as (kaiwo, who):
            for path in ("/manifests", "/manifests/delete"):
                for each, denied in (("viewer", "qrp"), ("ada", "qrp"), ("operator", "qp"), ("admin", "")):
                    for letter, text in (("q", queue), ("r", reservation), ("p", plan)):
                        answer = await who[each].ask("POST", path, text)
                        assert (answer.status_code == 403) == (letter in denied), (path, each, text, answer.text)
                # A document that is allowed does not open the door for one that is not.
                assert await who["ada"].status("POST", path, pod("x", "vision") + "---\n" + queue) == 403
            assert "mine" not in kaiwo.cluster.state.queues

    run(work())


def test_commands_logs_and_consoles_of_others_are_not_shown(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path, "viewer", "operator", "admin") as (kaiwo, who):
            await running_work_of_bob(kaiwo, who["bob"])
            log = "/workloads/default/train/logs"

            async def shown() -> bool:
                return SECRET in (await who["bob"].ask("GET", log)).text

            async with asyncio.timeout(60):
                while not await shown():
                    await asyncio.sleep(0.05)
            for name in ("bob", "operator", "admin"):
                detail = (await who[name].ask("GET", "/workloads/default/train")).json()
                assert detail["command"] == COMMAND
                assert not detail["hidden"]
                assert SECRET in (await who[name].ask("GET", log)).text
                assert await who[name].status("GET", "/workloads/default/train/console") == 200
            for name in ("ada", "viewer"):
                detail = (await who[name].ask("GET", "/workloads/default/train")).json()
                assert detail["command"] == []
                assert "shown to its user" in detail["hidden"]
                assert detail["summary"]["user"] == "bob", "whose it is, where it runs and why is for all to see"
                for path in (log, f"{log}?follow=true", f"{log}?submission=1", "/workloads/default/train/console"):
                    refused = await who[name].ask("GET", path)
                    assert refused.status_code == 403, path
                    assert "needs the role operator or admin: ask" in refused.json()["message"]
                for path in every_read():
                    answer = await who[name].ask("GET", path)
                    assert SECRET not in answer.text, path

    run(work())


def every_read() -> list[str]:
    paths = ["status", "cycles", "nodes", "nodes/node-0", "gpus", "agents", "partitions", "queues", "queues/lab"]
    paths += ["shares", "shares/lab", "reservations", "workloads", "workloads?user=bob", "workloads/default/train"]
    paths += ["workloads/default/train/why", "workloads/default/train/attempts", "openapi.json", "whoami"]
    return [f"/{path}" for path in paths]


@pytest.mark.parametrize("view", ["workloads", "gpus", "status"])
def test_a_stream_shows_no_command_of_others(tmp_path: Path, view: str) -> None:
    async def work() -> None:
        async with people(tmp_path) as (kaiwo, who):
            path = f"/api/v1/stream?view={view}"
            async with kaiwo.client.stream("GET", path, headers=who["ada"].headers) as stream:
                chunks, seen = stream.aiter_bytes(), b""
                await running_work_of_bob(kaiwo, who["bob"])
                async with asyncio.timeout(60):
                    while (b"default/train" if view != "status" else b"data:") not in seen:
                        seen += await anext(chunks)
            assert SECRET.encode() not in seen

    run(work())


def test_a_command_that_cannot_be_run_is_not_named_to_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path) as (kaiwo, who):
            await who["bob"].submit("broken", queue="vision", command=[f"/home/bob/{SECRET}"])
            await kaiwo.until_state("broken", "failed")
            listed = await who["ada"].ask("GET", "/workloads")
            assert "the command was not found" in listed.text
            assert SECRET not in listed.text

    run(work())


def test_a_name_that_is_used_again_shows_nobody_the_log_of_the_other(tmp_path: Path) -> None:
    async def work() -> None:
        async with people(tmp_path) as (kaiwo, who):
            ada, bob = who["ada"], who["bob"]
            for each, word in ((ada, "word-of-ada"), (bob, "word-of-bob")):
                answer = await each.submit("train", queue="vision", command=["echo", word])
                assert answer.status_code == 201, answer.text
                await until(lambda: kaiwo.cluster.record("default/train").state.is_over, "its end")
            log = "/workloads/default/train/logs"
            assert "word-of-ada" in (await ada.ask("GET", f"{log}?submission=1")).text
            assert "word-of-bob" in (await bob.ask("GET", f"{log}?submission=2")).text
            assert await ada.status("GET", f"{log}?submission=2") == 403
            assert await ada.status("GET", log) == 403
            assert await bob.status("GET", f"{log}?submission=1") == 403
            assert (await bob.ask("GET", "/workloads/default/train?submission=1")).json()["command"] == []
            # To delete the name is to forget all its submissions, also that of ada.
            assert await bob.status("POST", "/manifests/delete", pod("train", "vision")) == 403
            assert await ada.status("POST", "/manifests/delete", pod("train", "vision")) == 403

    run(work())


def test_whose_work_it_is_is_checked_in_the_transaction_that_changes_it(tmp_path: Path) -> None:
    """Between the request and the change, the name may be submitted again by somebody else."""

    async def work() -> None:
        async with people(tmp_path) as (kaiwo, who):
            assert (await who["bob"].submit("train", queue="vision", hold=True)).status_code == 201
            control: Any = kaiwo.cluster.abilities.work
            assert isinstance(control, EmbeddedWork)
            for verb in ALL:
                (refusal,) = await control.change_many(verb, ("default/train",), "ada", "ada")
                assert "belongs to user 'bob'" in str(refusal)
            for act in (
                control.checkpoint("default/train", 0, "ada", "ada"),
                control.remove((), ("default/train",), "ada", (), "ada"),
                control.forget_ended(("default/train",), "ada", "ada"),
            ):
                with pytest.raises(Exception, match="belongs to user 'bob'"):
                    await act

    run(work())
