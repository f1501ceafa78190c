"""What pods say of being stopped, and when they last saved their work: read from annotations, and followed."""

from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerMetadata, OwnerObject
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.clusters.kubernetes.webhooks.admission_review import AdmissionVerdict, read_review
from kaiwo.clusters.kubernetes.webhooks.review_workload import review_workload
from kaiwo.clusters.kubernetes.webhooks.submitting_user import WebhookPolicy
from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE, Queue
from kaiwo.model.workload import Workload
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.broken_server import server_that
from tests.clusters.kubernetes.kubectl_cluster import opened, pod_path, start_of
from tests.controlplane.plane import Plane
from tests.waiting import run, until

SAVED = "kaiwo.ai/last-checkpoint"
GANG = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "2"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job", "controller": True}


def put(cache: ClusterCache, name: str, annotations: dict[str, str], **more: Any) -> None:
    cache.upsert_pod(cached_pod(name, node="node-1", phase="Running", annotations=annotations, **more))


def told(cache: ClusterCache, now_s: int) -> list[Workload]:
    events = cache.flush(now_s)
    assert all(isinstance(event, WorkloadChanged) for event in events), events
    return [event.workload for event in events if isinstance(event, WorkloadChanged)]


def saved_s(cache: ClusterCache, now_s: int, name: str = "default/train") -> int:
    cache.flush(now_s)
    return cache.published.workloads[name].checkpoint_s


def put_job(cache: ClusterCache, notes: dict[str, str]) -> None:
    document = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-job"},
        "spec": {"parallelism": 1, "completions": 1},
    }  # fmt: skip
    owner = read_owner(document)
    assert not isinstance(owner, str)
    cache.gang_index.upsert_owner(OwnerObject(owner, OwnerMetadata(notes)))


@pytest.mark.parametrize("prefix", ["kaiwo.ai/", "kaiwo.silogen.ai/"])
def test_a_pod_says_how_patient_it_is_and_what_stopping_costs(prefix: str) -> None:
    cache = cache_with_nodes()
    notes = {prefix + "preemption-delay": "10m", prefix + "restart-cost": "5m", prefix + "last-checkpoint": "900"}
    put(cache, "train", notes)
    cache.flush(1_000)
    work = cache.published.workloads["default/train"]
    assert (work.preemption_delay_s, work.restart_s, work.checkpoint_s) == (600, 300, 900)


def test_the_latest_of_its_pods_counts_and_is_followed_while_they_run() -> None:
    cache = cache_with_nodes()
    put(cache, "a", GANG | {SAVED: "800"})
    put(cache, "b", GANG)
    assert saved_s(cache, 1_000) == 800
    put(cache, "b", GANG | {SAVED: "1970-01-01T00:15:00Z"})
    assert [work.checkpoint_s for work in told(cache, 1_001)] == [900]
    put(cache, "a", GANG | {SAVED: "850"})  # it is older than the other's: there is nothing to tell
    assert cache.flush(1_002) == ()
    put(cache, "b", GANG)
    assert [work.checkpoint_s for work in told(cache, 1_003)] == [850]


def test_a_time_to_come_is_the_time_at_which_it_was_read_and_stays_that() -> None:
    cache = cache_with_nodes()
    put(cache, "train", {SAVED: "2999-01-01T00:00:00Z"})
    assert saved_s(cache, 1_000) == 1_000
    put(cache, "train", {SAVED: "2999-01-01T00:00:00Z", "other": "changed"})
    assert cache.flush(2_000) == ()
    put(cache, "train", {SAVED: "2999-01-01T00:00:01Z"})
    assert saved_s(cache, 3_000) == 3_000


def test_the_object_above_may_say_it_and_only_its_own_pods_are_looked_at() -> None:
    cache = cache_with_nodes()
    put(cache, "train-x", {}, ownerReferences=[JOB])
    put(cache, "other", {})
    put_job(cache, {})
    cache.flush(1_000)
    (name,) = [name for name in cache.published.workloads if name != "default/other"]
    put_job(cache, {SAVED: "900"})
    assert cache.gang_index.take_touched() == [cache.names.unit_of[name]]
    put_job(cache, {SAVED: "950"})
    assert saved_s(cache, 1_001, name) == 950
    put_job(cache, {})
    assert saved_s(cache, 1_002, name) == 0


@pytest.mark.parametrize("text", ["yesterday", "", "2026-01-31", "-1", "9" * 400, "\u0663"])
def test_what_cannot_be_read_is_told_once_and_keeps_nobody_from_anything(text: str) -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("waits", annotations={SAVED: text}))
    put(cache, "train", {SAVED: text, "kaiwo.ai/queue": "lab", "kaiwo.ai/restart-cost": "5m"})
    cache.queue_events(cache.queue_cache.upsert(Queue("lab")))
    cache.flush(1_000)
    assert {"default/waits", "default/train"} == set(cache.published.workloads)
    assert cache.blocked_pods == {}
    work = cache.published.workloads["default/train"]
    assert (work.queue, work.restart_s, work.checkpoint_s) == ("lab", 300, 0)
    ((key, sentence),) = cache.checkpoints.take_faults().items()
    assert key == ("default", "train")
    assert sentence.startswith(f"Pod 'train': {SAVED} is ")
    assert sentence.endswith("whole seconds since 1970; until then it is ignored")
    put(cache, "train", {SAVED: text, "kaiwo.ai/queue": "lab", "kaiwo.ai/restart-cost": "5m", "x": "y"})
    assert cache.flush(1_001) == ()
    assert cache.checkpoints.take_faults() == {}


@pytest.mark.parametrize("name", ["preemption-delay", "restart-cost", "estimate"])
def test_garbage_on_a_pod_that_runs_leaves_it_in_its_queue(name: str) -> None:
    cache = cache_with_nodes()
    cache.queue_events(cache.queue_cache.upsert(Queue("lab")))
    notes = {"kaiwo.ai/queue": "lab", "kaiwo.ai/priority": "7", "kaiwo.ai/restart-cost": "5m"}
    put(cache, "train", notes)
    cache.flush(1_000)
    before = cache.published.workloads["default/train"]
    put(cache, "train", notes | {f"kaiwo.ai/{name}": "garbage"})
    cache.flush(1_001)
    after = cache.published.workloads["default/train"]
    assert (after.queue, after.priority) == ("lab", 7)
    assert replace(after, restart_s=before.restart_s) == before


@pytest.mark.parametrize("name", ["preemption-delay", "restart-cost"])
def test_garbage_on_a_pod_that_waits_is_said_on_it(name: str) -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("train", annotations={f"kaiwo.ai/{name}": "garbage"}))
    assert cache.flush(1_000) == ()
    assert f"kaiwo.ai/{name}" in cache.blocked_pods["default", "train"]
    assert "not a duration; write it as" in cache.blocked_pods["default", "train"]


def test_what_is_gone_is_forgotten() -> None:
    cache = cache_with_nodes()
    put(cache, "train", {SAVED: "900"})
    cache.flush(1_000)
    cache.delete_pod(cache.pods["default", "train"])
    cache.flush(1_001)
    put(cache, "train", {}, uid="uid-again")
    assert saved_s(cache, 1_002) == 0


def test_the_writer_says_on_the_pod_what_cannot_be_read() -> None:
    said: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        said.append(await request.json())
        return web.json_response({})

    async def test() -> None:
        async with server_that(answer) as address:
            client, cache = Client(ClusterAccess(address, Trust(), FixedCredential(Credential()))), cache_with_nodes()
            writer = EventWriter(client, cache, lambda: 0, lambda *_, **__: None)
            writer.start()
            try:
                put(cache, "train", {SAVED: "yesterday"})
                cache.flush(1_000)
                writer.publish_changes()
                await until(lambda: said, "the Event")
            finally:
                await writer.close()
                await client.close()

    run(test())
    assert (said[0]["reason"], said[0]["involvedObject"]["name"]) == ("CheckpointUnreadable", "train")
    assert '"yesterday"' in said[0]["message"]


def review(
    notes: dict[str, str], scheduler: str = "kaiwo-scheduler", before: dict[str, str] | None = None
) -> AdmissionVerdict:
    def pod(said: dict[str, str]) -> dict[str, Any]:
        metadata = {"name": "p", "namespace": "default", "annotations": said}
        return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [{"name": "c"}]}}

    change = {} if before is None else {"operation": "UPDATE", "oldObject": pod(before)}
    request = {
        "uid": "u", "kind": {"group": "", "kind": "Pod"}, "namespace": "default", "object": pod(notes),
        "userInfo": {"username": "ada"}, **change,
    }  # fmt: skip
    return review_workload(
        read_review(msgspec.json.encode({"request": request})), {"default": UNBOUNDED_DEFAULT_QUEUE},
        WebhookPolicy("kaiwo-scheduler"), False,
    )  # fmt: skip


def test_the_door_refuses_bad_durations_and_only_warns_of_a_bad_moment() -> None:
    assert "kaiwo.ai/restart-cost" in review({"kaiwo.ai/restart-cost": "soon"}).refusal
    assert "kaiwo.ai/preemption-delay" in review({"kaiwo.ai/preemption-delay": "0"}).refusal
    found = review({SAVED: "soon"})
    assert found.refusal == ""
    assert [SAVED in warning for warning in found.warnings] == [True]
    assert review({SAVED: "900"}).warnings == ()


def test_work_that_would_be_refused_by_now_may_still_say_that_it_saved() -> None:
    wrong = {"kaiwo.ai/restart-cost": "soon"}
    assert review(wrong | {SAVED: "900"}, before=wrong).refusal == ""
    assert len(review(wrong | {SAVED: "soon"}, before=wrong | {SAVED: "900"}).warnings) == 1
    assert review(wrong | {"kaiwo.ai/estimate": "1h"}, before=wrong).refusal != ""


def test_a_moment_alone_does_not_ask_for_our_scheduler() -> None:
    """Programs write it wherever they run; it is no wish."""
    assert review({SAVED: "900"}, "default-scheduler").patch == ()
    assert review({"kaiwo.ai/restart-cost": "5m"}, "default-scheduler").patch != ()


def test_a_pod_on_the_real_server_says_it_again_and_again(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("train", annotations={"kaiwo.ai/restart-cost": "5m"})
            await scene.until_waiting("train")
            await scene.start(start_of("train"))
            for at_s in (1_700_000_000, 1_700_000_060):
                await scene.kubectl.patch(pod_path("train"), {"metadata": {"annotations": {SAVED: str(at_s)}}})
                await scene.until(lambda at_s=at_s: scene.workload("train").checkpoint_s == at_s)
            await scene.kubectl.patch(pod_path("train"), {"metadata": {"annotations": {SAVED: "garbage"}}})
            await scene.until(lambda: scene.workload("train").checkpoint_s == 0)
            assert scene.workload("train").restart_s == 300

    run(test())
