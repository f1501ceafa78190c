"""What people do through the API, and that the next look sees it."""

import json
from pathlib import Path

from kaiwo.api.views import Outcome, Page, QueueView, WhyView, WorkloadDetail, WorkloadView
from tests.api.world import decode, run, until, world

QUEUES = """
kind: KaiwoQueue
apiVersion: kaiwo.ai/v1alpha2
metadata: {name: team}
spec: {parentQueue: lab, resources: {gpu: {quota: 2}}}
---
kind: KaiwoQueue
apiVersion: kaiwo.ai/v1alpha2
metadata: {name: lab}
spec: {resources: {gpu: {quota: 4}}}
"""


def test_a_workload_from_submission_to_removal(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            made = await kaiwo.post("/workloads", {"name": "one", "gpus": 2, "hold": True, "simulate": "1h"})
            assert made.status_code == 201
            assert decode(made, Outcome).names == ["default/one"]
            assert await kaiwo.state_of("one") == "held", "the next look sees it"
            assert (await kaiwo.post("/workloads/default/one/release")).status_code == 200
            await kaiwo.until_state("one", "running")
            detail = decode(await kaiwo.get("/workloads/default/one"), WorkloadDetail)
            assert detail.summary.pods.used == 1
            assert len(detail.placed[0].devices) == 2
            assert (await kaiwo.post("/workloads/default/one/hold")).status_code == 409
            assert (await kaiwo.post("/workloads/default/one/requeue")).status_code == 200
            await until(lambda: kaiwo.cluster.record("default/one").attempt == 2, "the second attempt")
            assert (await kaiwo.delete("/workloads/default/one")).status_code == 200
            await kaiwo.until_state("one", "cancelled")
            assert (await kaiwo.delete("/workloads/default/ghost")).status_code == 404

    run(work())


def test_every_write_is_in_both_logs(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("one", hold=True)
            await kaiwo.client.post("/api/v1/workloads/default/one/hold")

    run(work())
    lines = [json.loads(line) for line in (tmp_path / "api.log").read_text().splitlines()]
    assert [(line["who"], line["method"], line["status"]) for line in lines] == [
        ("token", "POST", 201),
        ("", "POST", 401),
    ]
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["verb"], line["object"]) for line in audit] == [("token", "submit", "default/one")]
    assert (tmp_path / "api.log").stat().st_mode & 0o077 == 0


def test_documents_go_in_together_or_not_at_all(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("taken", hold=True)
            for name, status in (("taken", 400), ("fine", 200)):
                answer = await kaiwo.post(
                    "/manifests", f"{QUEUES}---\nname: {name}\nqueue: team\nhold: true\n", dry_run=True
                )
                assert answer.status_code == status, answer.text
            assert len(decode(await kaiwo.get("/queues"), Page[QueueView]).items) == 1, "a dry run changes nothing"
            refused = await kaiwo.post("/manifests", f"{QUEUES}---\nname: taken\nqueue: team\n")
            assert refused.status_code == 400
            await until(lambda: set(kaiwo.loop.picture.queue_objects) == {"default"}, "the queues to be put back")
            done = decode(
                await kaiwo.post("/manifests", f"{QUEUES}---\nname: fine\nqueue: team\nhold: true\n"), Outcome
            )
            assert done.done == ["queue lab created", "queue team created", "workload default/fine submitted"]
            queues = decode(await kaiwo.get("/queues"), Page[QueueView]).items
            assert [(queue.name, queue.depth, queue.waiting) for queue in queues] == [
                ("default", 0, 1), ("lab", 0, 1), ("team", 1, 1),
            ]  # fmt: skip
            changed = QUEUES.replace("quota: 4", "quota: 5")
            refused = await kaiwo.post("/manifests", f"{changed}---\nname: fine\nqueue: team\n")
            assert refused.status_code == 400
            await until(lambda: kaiwo.loop.picture.queue_objects["lab"].gpu.quota == 4000, "the old quota")

    run(work())


def test_what_documents_name_is_deleted(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            text = f"{QUEUES}---\nname: fine\nqueue: team\nsimulate: 1h\n"
            await kaiwo.post("/manifests", text)
            await kaiwo.until_state("fine", "running")
            gone = await kaiwo.post("/manifests/delete", text)
            assert gone.status_code == 200, gone.text
            assert decode(gone, Outcome).done == [
                "workload default/fine deleted",
                "queue team deleted",
                "queue lab deleted",
            ]
            assert (await kaiwo.get("/workloads")).json()["total"] == 0

    run(work())


def test_the_demo_can_be_cleared(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("mine", simulate="1h")
            await kaiwo.submit("sample", simulate="1h", labels={"kaiwo.ai/demo": "true"})
            await kaiwo.submit("later", hold=True, labels={"kaiwo.ai/demo": "true"})
            await kaiwo.until_state("sample", "running")
            cleared = decode(await kaiwo.delete("/demo"), Outcome)
            assert sorted(cleared.names) == ["default/later", "default/sample"]
            left = decode(await kaiwo.get("/workloads"), Page[WorkloadView])
            assert [each.name for each in left.items] == ["default/mine"]

    run(work())


def test_why_has_an_answer_in_every_state(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("runs", gpus=1, simulate="1h")
            await kaiwo.submit("large", gpus=8, pods=3, simulate="1h")
            await kaiwo.submit("held", hold=True)
            await kaiwo.until_state("runs", "running")
            await until(lambda: kaiwo.loop.picture.backlog.by_key and not kaiwo.loop.picture.backlog.open, "a cycle")
            large = decode(await kaiwo.get("/workloads/default/large/why"), WhyView)
            assert large.obstacles
            assert large.position == 1
            assert decode(await kaiwo.get("/workloads/default/held/why"), WhyView).obstacles[0].reason == "held"
            runs = decode(await kaiwo.get("/workloads/default/runs/why"), WhyView)
            assert runs.answer == "It does not wait: it is running."
            row = next(
                each for each in (await kaiwo.get("/workloads")).json()["items"] if each["name"] == "default/large"
            )
            assert row["reason"] == large.obstacles[0].sentence

    run(work())


def test_nodes_are_cordoned_and_drained(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            await kaiwo.submit("one", gpus=1, simulate="1h")
            await kaiwo.until_state("one", "running")
            assert (await kaiwo.post("/nodes/node-0/cordon", {"reason": "fans"})).status_code == 200
            seen = (await kaiwo.get("/nodes/node-0")).json()
            assert (seen["state"], seen["reason"], seen["pods"]["used"]) == ("cordoned", "fans", 1)
            assert (await kaiwo.get("/gpus", free=True)).json()["total"] == 0
            drained = decode(await kaiwo.post("/nodes/node-0/drain"), Outcome)
            assert drained.names == ["default/one"]
            await kaiwo.until_state("one", "waiting")
            assert (await kaiwo.post("/nodes/node-0/uncordon")).status_code == 200
            await kaiwo.until_state("one", "running")

    run(work())
