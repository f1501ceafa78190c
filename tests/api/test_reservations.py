"""Reservations through the API: created, listed, used, audited, counted and deleted."""

from pathlib import Path
from typing import Any

import httpx

from kaiwo.api.views.answers import Outcome, Page
from kaiwo.api.views.reservations import ReservationView
from kaiwo.api.views.workloads import WhyView, WorkloadDetail
from tests.api.world import WRONG, World, decode, world
from tests.audit_records import audit_of, done_by_people
from tests.waiting import run, until

MANIFEST = """
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoQueue
metadata: {name: lab}
---
apiVersion: kaiwo.ai/v1alpha2
kind: KaiwoReservation
metadata: {name: night}
spec: {gpus: 8, gpuModels: [MI300X], owner: {queue: lab}, end: "2099-01-01T00:00:00Z", atEnd: evict}
"""


async def one(kaiwo: World, name: str) -> ReservationView:
    return decode(await kaiwo.get(f"/reservations/{name}"), ReservationView)


def _obstacles(kaiwo: World, name: str) -> bool:
    """A cycle has said why it waits."""
    backlog = kaiwo.loop.state.backlog
    return backlog.is_queued(f"default/{name}") and bool(backlog.class_of(f"default/{name}").obstacles)


def test_a_reservation_from_a_file_to_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            dry = decode(await kaiwo.post("/manifests", MANIFEST, dry_run="true"), Outcome)
            assert "reservation night created (dry run)" in dry.done
            assert decode(await kaiwo.get("/reservations"), Page[ReservationView]).items == []
            made = decode(await kaiwo.post("/manifests", MANIFEST), Outcome)
            assert made.done == ["queue lab created", "reservation night created"]
            again = decode(await kaiwo.post("/manifests", MANIFEST), Outcome)
            assert again.done == ["queue lab unchanged", "reservation night unchanged"]
            await until(lambda: kaiwo.loop.state.reservations.objects["night"].picked, "the place to be picked")
            found = await one(kaiwo, "night")
            assert (found.phase, found.owner_kind, found.owner, found.gpus) == ("active", "queue", "lab", 8)
            assert {device.node for device in found.devices} == {"node-0"}
            await kaiwo.submit("theirs", gpus=8, pods=2, simulate="1h")
            await until(lambda: _obstacles(kaiwo, "theirs"), "it to be tried")
            why = decode(await kaiwo.get("/workloads/default/theirs/why"), WhyView)
            assert "that it could use for queue lab until 2099-01-01 00:00 UTC" in str(why.obstacles)
            await kaiwo.submit("mine", gpus=8, queue="lab", simulate="1h")
            await kaiwo.until_state("mine", "running")
            assert (await one(kaiwo, "night")).used_milli == 8000
            gone = decode(await kaiwo.post("/manifests/delete", MANIFEST.partition("---")[2]), Outcome)
            assert gone.done == ["reservation night deleted"]
            assert (await kaiwo.get("/reservations/night")).status_code == 404

    run(work())


def test_a_form_may_count_from_now(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            form: dict[str, Any] = {"name": "later", "nodes": ["node-1"], "start": "2h", "end": "30m"}
            assert (await kaiwo.post("/reservations", form)).status_code == 201
            found = await one(kaiwo, "later")
            assert found.phase == "pending"
            assert 7190 < found.start_s - kaiwo.cluster.now_s() <= 7200
            assert found.end_s - found.start_s == 1800
            assert (found.owner_kind, found.is_exact, found.nodes, found.gpus) == ("pool", True, ["node-1"], 8)
            pending = decode(await kaiwo.get("/reservations", phase="pending"), Page[ReservationView])
            active = decode(await kaiwo.get("/reservations", phase="active"), Page[ReservationView])
            assert (pending.total, active.total) == (1, 0)
            changed = await kaiwo.post("/reservations", {**form, "start": "3h"})
            assert decode(changed, Outcome).done == ["reservation later changed"]
            assert (await kaiwo.delete("/reservations/later")).status_code == 200
            assert (await kaiwo.delete("/reservations/later")).status_code == 404

    run(work())


def test_what_is_wrong_is_said_with_its_field(tmp_path: Path) -> None:
    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            cases: list[tuple[dict[str, Any], int, str]] = [
                ({"gpus": 1}, 400, "name is missing"),
                ({"name": "x"}, 400, "exactly one of gpus"),
                ({"name": "x", "gpu": 1}, 400, "did you mean gpus?"),
                ({"name": "x", "gpus": 1, "end": "soon"}, 400, 'a duration such as \\"8h\\"'),
                ({"name": "x", "gpus": 1, "owner": {"queue": "ghost"}}, 409, "create it first"),
                ({"name": "x", "nodes": ["ghost"]}, 409, "node ghost"),
                ({"name": "x", "gpus": 1, "owner": {}}, 400, "name exactly one"),
            ]
            for form, status, words in cases:
                answer = await kaiwo.post("/reservations", form)
                assert (answer.status_code, words in answer.text) == (status, True), answer.text
            assert (await kaiwo.get("/reservations/ghost")).status_code == 404
            assert (await kaiwo.client.delete("/api/v1/reservations/y", headers=WRONG)).status_code == 401
            assert (await kaiwo.client.post("/api/v1/reservations", headers=WRONG)).status_code == 401

    run(work())


def test_writes_are_audited_and_all_of_it_is_counted(tmp_path: Path) -> None:
    async def work() -> httpx.Response:
        async with world(tmp_path) as kaiwo:
            await kaiwo.post("/reservations", {"name": "a", "gpus": 2, "owner": {"user": "ada"}})
            await kaiwo.post("/reservations", {"name": "b", "gpus": 2, "start": "1h"})
            await kaiwo.delete("/reservations/b")
            await kaiwo.submit("short", gpus=1, simulate="1h", expires="2s")
            await kaiwo.until_state("short", "running")
            detail = decode(await kaiwo.get("/workloads/default/short"), WorkloadDetail)
            assert detail.expires_s > 0
            await kaiwo.until_state("short", "cancelled")
            detail = decode(await kaiwo.get("/workloads/default/short"), WorkloadDetail)
            assert detail.message.startswith("its allocation was granted until ")
            assert (await kaiwo.post("/workloads", {"name": "bad", "gpus": -1})).status_code == 400
            return await kaiwo.client.get("/metrics")

    text = run(work()).text
    for line in (
        'kaiwo_reservations{phase="active"} 1.0',
        'kaiwo_reservation_gpus{owner="user ada",phase="active",reservation="a"} 2.0',
        'kaiwo_reservation_used_gpus{owner="user ada",phase="active",reservation="a"} 0.0',
        "kaiwo_reservations_made_total 2.0",
        'kaiwo_allocations_total{stage="requested"} 1.0',
        'kaiwo_allocations_total{stage="refused"} 1.0',
        'kaiwo_allocations_total{stage="allocated"} 1.0',
        'kaiwo_allocations_total{stage="expired"} 1.0',
        'kaiwo_allocations_total{stage="released"} 1.0',
    ):
        assert line in text, line
    assert done_by_people(tmp_path) == [
        ("put-reservation", "reservation/a"),
        ("put-reservation", "reservation/b"),
        ("remove-reservation", "reservation/b"),
        ("submit", "workload/default/short"),
    ]
    assert ("scheduler", "expire", "workload/default/short") in [
        (each.person, each.action, each.object) for each in audit_of(tmp_path)
    ]


def test_a_reservation_that_stops_running_work_is_refused_until_the_client_insists(tmp_path: Path) -> None:
    """Lesson 42: a typo emptied the cluster without a word."""

    async def work() -> None:
        async with world(tmp_path) as kaiwo:
            await kaiwo.submit("train", gpus=8, pods=2, simulate="1h")
            await kaiwo.until_state("train", "running")
            night = {"name": "night", "gpus": 16, "owner": {"user": "ada"}}
            refused = await kaiwo.post("/reservations", night)
            assert refused.status_code == 409
            assert refused.json()["field"] == "stop_running"
            assert "night stops 1 running workload: default/train" in refused.json()["message"]
            dry = decode(await kaiwo.post("/reservations", night, dry_run="true"), Outcome)
            assert dry.warnings == ["reservation night stops 1 running workload: default/train"]
            large = await kaiwo.post("/reservations", night | {"gpus": 160})
            assert "night asks for 160 GPUs, but the cluster has 16 that match" in large.json()["message"]
            later = await kaiwo.post("/reservations", night | {"start": "2h"})
            assert later.status_code == 409, "it would stop the same work when it starts"
            in_file = MANIFEST.replace("gpus: 8", "gpus: 16")
            assert "stops 1 running workload" in (await kaiwo.post("/manifests", in_file)).text
            assert decode(await kaiwo.get("/reservations"), Page[ReservationView]).items == []
            assert await kaiwo.state_of("train") == "running"
            assert (await kaiwo.post("/reservations", night, stop_running="true")).status_code == 201
            await kaiwo.until_state("train", "waiting")
            again = await kaiwo.post("/reservations", night)
            assert again.status_code == 201, "it changes nothing"

    run(work())
