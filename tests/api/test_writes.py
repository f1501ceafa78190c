"""What people do through the API, and that the next look sees it."""

import json
from pathlib import Path

from kaiwo.api.security.process_identity import process_owner
from kaiwo.api.views.answers import Outcome, Page, Problem
from kaiwo.api.views.queues import QueueView
from kaiwo.api.views.workloads import WhyView, WorkloadDetail, WorkloadView
from kaiwo.clusters.local.demo_workloads import submit_demo
from tests.api.world import WRONG, decode, world
from tests.audit_records import audit_of
from tests.waiting import run, until

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
            await kaiwo.client.post("/api/v1/workloads/default/one/hold", headers=WRONG)

    run(work())
    lines = [json.loads(line) for line in (tmp_path / "api.log").read_text().splitlines()]
    assert [(line["who"], line["method"], line["status"]) for line in lines] == [
        ("token", "POST", 201),
        ("", "POST", 401),
    ]
    assert [(each.person, each.action, each.object, each.outcome) for each in audit_of(tmp_path)] == [
        (process_owner(), "submit", "workload/default/one", "done"),
        ("", "hold", "workload/default/one", "refused"),
    ]
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
            assert set(kaiwo.cluster.state.queues) == {"default"}
            done = decode(
                await kaiwo.post("/manifests", f"{QUEUES}---\nname: fine\nqueue: team\nhold: true\n"), Outcome
            )
            assert done.done == ["queue team created", "queue lab created", "workload default/fine submitted"]
            queues = decode(await kaiwo.get("/queues"), Page[QueueView]).items
            assert [(queue.name, queue.depth, queue.waiting) for queue in queues] == [
                ("default", 0, 1), ("lab", 0, 1), ("team", 1, 1),
            ]  # fmt: skip
            changed = QUEUES.replace("quota: 4", "quota: 5")
            refused = await kaiwo.post("/manifests", f"{changed}---\nname: fine\nqueue: team\n")
            assert refused.status_code == 400
            assert kaiwo.cluster.state.queues["lab"].gpu.quota == 4000

    run(work())


JOB = "name: one\nqueue: team\ngpus: 2\nsimulate: 1h\nexpires: 2h\nlabels: {a: b}\n"


def test_the_same_documents_can_be_applied_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            first = decode(await kaiwo.post("/manifests", f"{QUEUES}---\n{JOB}"), Outcome)
            assert first.done[-1] == "workload default/one submitted"
            await kaiwo.until_state("one", "running")
            again = decode(await kaiwo.post("/manifests", f"{QUEUES}---\n{JOB}---\nname: two\nhold: true\n"), Outcome)
            assert again.done == [
                "queue team unchanged",
                "queue lab unchanged",
                "workload default/one unchanged",
                "workload default/two submitted",
            ]
            assert again.names == ["default/one", "default/two"]
            assert kaiwo.cluster.record("default/one").attempt == 1

    run(work())


def test_other_work_under_the_name_of_living_work_is_refused_with_what_differs(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", f"{QUEUES}---\n{JOB}")
            await kaiwo.until_state("one", "running")
            changed = JOB.replace("gpus: 2", "gpus: 1").replace("simulate: 1h", "simulate: 2h\npriority: 7")
            refused = await kaiwo.post("/manifests", changed)
            assert refused.status_code == 400
            assert decode(refused, Problem).message == (
                "workload default/one exists, is running, and differs in: its pods and their requests, its priority, "
                "its simulated run time. Workloads cannot be changed in place: run kaiwo cancel default/one and apply "
                "this again, or rename it"
            )

    run(work())


def test_a_name_of_a_workload_and_of_an_array_waits_for_both_and_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            for form in ({"name": "am"}, {"name": "am", "array": "0-1"}):
                await kaiwo.post("/workloads", {**form, "hold": True, "simulate": "1h"})
            made = decode(await kaiwo.post("/workloads", {"name": "next", "after": ["am"], "simulate": "1h"}), Outcome)
            both = "waits for workload default/am and for every task of array default/am: both have that name"
            assert made.warnings == [f"workload default/next {both}"]
            assert kaiwo.cluster.record("default/next").workload.after == ("default/am", "default/am-*")

    run(work())


def test_a_dry_run_names_what_it_would_make(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            made = await kaiwo.post("/workloads", {"name": "one", "simulate": "1h"}, dry_run=True)
            assert decode(made, Outcome).names == ["default/one"]

    run(work())


def test_a_dry_run_answers_what_the_real_one_would(tmp_path: Path) -> None:
    texts = [
        "name: x\nqueue: nowhere\n",
        "name: x\nqueue: lab\n",
        "name: taken\n",
        "name: x\nafter: [ghost]\n",
        "name: x\nafter: [y]\n---\nname: y\nafter: [x]\n",
        QUEUES.replace("parentQueue: lab", "parentQueue: default"),
        QUEUES.replace("parentQueue: lab", "parentQueue: attic"),
        f"{QUEUES}---\nname: x\nqueue: team\nhold: true\n",
    ]

    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", QUEUES)
            await kaiwo.submit("taken", hold=True)
            before = kaiwo.cluster.state.as_events()
            for text in texts:
                first = await kaiwo.post("/manifests", text, dry_run=True)
                assert kaiwo.cluster.state.as_events() == before
                second = await kaiwo.post("/manifests", text)
                assert first.status_code == second.status_code, text
                if first.status_code == 200:
                    assert [line.removesuffix(" (dry run)") for line in first.json()["done"]] == second.json()["done"]
                else:
                    assert first.json() == second.json()

    run(work())


def test_a_list_of_a_parent_queue_shows_the_work_below_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", QUEUES)
            for name, queue in (("a", "team"), ("b", "default")):
                await kaiwo.submit(name, queue=queue, hold=True)
            for queue, names in (("lab", ["a"]), ("team", ["a"]), ("default", ["b"]), ("x", [])):
                page = decode(await kaiwo.get("/workloads", queue=queue), Page[WorkloadView])
                assert [each.name for each in page.items] == [f"default/{name}" for name in names], queue

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
            assert [queue["name"] for queue in (await kaiwo.get("/queues")).json()["items"]] == ["default"]

    run(work())


def test_nothing_is_deleted_when_a_part_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", f"{QUEUES}---\nname: fine\nqueue: team\nsimulate: 1h\n")
            await kaiwo.submit("other", queue="team", hold=True)
            for text, status in (
                (f"{QUEUES}---\nname: fine\n", 409),
                (f"{QUEUES}---\nname: fine\n---\nname: other\n---\nname: ghost\n", 404),
            ):
                refused = await kaiwo.post("/manifests/delete", text)
                assert refused.status_code == status, refused.text
            assert await kaiwo.state_of("other") == "held"
            assert await kaiwo.state_of("fine") in ("waiting", "running")
            assert set(kaiwo.cluster.state.queues) == {"default", "lab", "team"}

    run(work())


def test_whoever_cancels_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("one", hold=True)
            await kaiwo.delete("/workloads/default/one")
            detail = decode(await kaiwo.get("/workloads/default/one"), WorkloadDetail)
            assert detail.message == (f"cancelled by {process_owner()}" if process_owner() else "cancelled")

    run(work())


def test_the_demo_is_cleared_without_a_trace(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("mine", simulate="1h")
            await submit_demo(kaiwo.cluster)
            script = ["sh", "-c", "trap '' TERM; sleep 60"]
            await kaiwo.submit("stubborn", command=script, labels={"kaiwo.ai/demo": "true"}, queue="sandbox", cpu="1")
            await kaiwo.until_state("stubborn", "running")
            cleared = decode(await kaiwo.delete("/demo"), Outcome)
            assert "default/stubborn" in cleared.names
            assert "demo/too-large" in cleared.names
            left = decode(await kaiwo.get("/workloads"), Page[WorkloadView])
            assert [each.name for each in left.items] == ["default/mine"]
            assert [queue["name"] for queue in (await kaiwo.get("/queues")).json()["items"]] == ["default"]
            assert decode(await kaiwo.delete("/demo"), Outcome).done == ["there are no demo workloads to remove"]

    run(work())


def test_why_has_an_answer_in_every_state(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("runs", gpus=1, simulate="1h")
            await kaiwo.submit("large", gpus=8, pods=3, simulate="1h")
            await kaiwo.submit("held", hold=True)
            await kaiwo.until_state("runs", "running")
            await until(lambda: kaiwo.loop.state.backlog.by_key and not kaiwo.loop.state.backlog.to_try, "a cycle")
            large = decode(await kaiwo.get("/workloads/default/large/why"), WhyView)
            assert large.obstacles
            assert large.position == 1
            assert decode(await kaiwo.get("/workloads/default/held/why"), WhyView).obstacles[0].reason == "held"
            runs = decode(await kaiwo.get("/workloads/default/runs/why"), WhyView)
            assert runs.answer == "It is not waiting: it is running."
            row = next(
                each for each in (await kaiwo.get("/workloads")).json()["items"] if each["name"] == "default/large"
            )
            assert row["reason"] == large.obstacles[0].sentence

    run(work())


def test_work_may_wait_for_all_tasks_of_an_array(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("sweep", array="0-2", hold=True, simulate="1s")
            await kaiwo.submit("by-form", after=["sweep"], command=["true"])
            answer = await kaiwo.post("/manifests", "name: by-yaml\nafter: [default/sweep]\ncommand: ['true']")
            assert answer.status_code == 200, answer.text
            detail = decode(await kaiwo.get("/workloads/default/by-yaml"), WorkloadDetail)
            assert detail.after == ["default/sweep-*"]
            await until(lambda: "default/by-form" in kaiwo.loop.state.backlog.gated, "it to be looked at")
            why = decode(await kaiwo.get("/workloads/default/by-form/why"), WhyView)
            assert why.obstacles[0].sentence == "it waits for default/sweep-* to succeed"
            lost = decode(await kaiwo.get("/workloads/default/sweep"), Problem)
            assert "it is an array: name one of its tasks" in lost.message
            for index in range(3):
                assert not kaiwo.cluster.record("default/by-form").state.is_over
                await kaiwo.post(f"/workloads/default/sweep-{index}/release")
            await kaiwo.until_state("by-form", "succeeded")
            await kaiwo.until_state("by-yaml", "succeeded")

    run(work())


def test_work_past_its_time_limit_is_said_to_be_stopping(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path, nodes=1) as kaiwo:
            stubborn = ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]
            kaiwo.cluster.grace_s = 3.0
            await kaiwo.submit("late", command=stubborn, time="1s")
            await kaiwo.until_state("late", "stopping")
            why = decode(await kaiwo.get("/workloads/default/late/why"), WhyView)
            assert why.answer == "It is not waiting: it is stopping (stopped at its time limit of 1 s)."
            row = (await kaiwo.get("/workloads")).json()["items"][0]
            assert (row["state"], row["reason"]) == ("stopping", "stopped at its time limit of 1 s")
            await kaiwo.until_state("late", "failed")

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


def test_a_priority_above_the_maximum_of_its_queue_is_refused_and_an_older_one_counts_as_the_maximum(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/manifests", QUEUES.replace("{gpu: {quota: 4}}", "{gpu: {quota: 4}}, maxPriority: 5000"))
            refused = await kaiwo.post("/workloads", {"name": "one", "priority": 1_000_000_000})
            assert refused.status_code == 409
            assert decode(refused, Problem).field == "priority"
            assert (
                "asks for priority 1000000000, and queue default allows at most 1000"
                in decode(refused, Problem).message
            )
            await kaiwo.submit("two", queue="team", priority=5000, simulate="1h")
            await kaiwo.post("/manifests", QUEUES.replace("{gpu: {quota: 4}}", "{gpu: {quota: 4}}, maxPriority: 7"))
            queue = decode(await kaiwo.get("/queues/team"), QueueView)
            assert queue.max_priority == 7
            detail = decode(await kaiwo.get("/workloads/default/two"), WorkloadDetail)
            assert (detail.summary.priority, detail.asked_priority) == (7, 5000)
            assert detail.capped_priority == "its priority counts as 7, the maximum of queue lab; it asks for 5000"
            await kaiwo.submit("three", gpus=60, queue="team", priority=7, simulate="1h")
            await kaiwo.post("/manifests", QUEUES.replace("{gpu: {quota: 4}}", "{gpu: {quota: 4}}, maxPriority: 3"))
            answer = decode(await kaiwo.get("/workloads/default/three/why"), WhyView)
            assert answer.capped_priority == "its priority counts as 3, the maximum of queue lab; it asks for 7"

    run(work())
