"""Space that is kept for waiting pods, and gangs of which only a part is up: both outlive who began them."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from kaiwo.clusters.kubernetes.cache.nomination_annotations import NOMINATION_ANNOTATION, write_nomination
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.writers.nomination_writer import NominationWriter
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import NominationChanged, NominationGone, WorkloadChanged
from kaiwo.model.plan import EvictionCause, Nomination, Plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.broken_server import server_that
from tests.clusters.kubernetes.kubectl_cluster import Scene, full, opened, opened_here, start_of, whole
from tests.clusters.kubernetes.test_cluster_cache import GANG, _grant
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run, until

SPACE = Nomination(full("w"), "main-0", "node-1", whole(0, 1), 1000, 1024)


async def note_of(scene: Scene, name: str, wanted: bool) -> dict[str, Any]:
    """The pod, once its annotation is there or gone."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pod = await scene.kubectl.read_pod(name)
            if (NOMINATION_ANNOTATION in pod["metadata"].get("annotations", {})) == wanted:
                return pod
            await asyncio.sleep(0.02)


def kept_in(scene: Scene) -> dict[str, Nomination]:
    """What a reader of the events believes."""
    kept: dict[str, Nomination] = {}
    for event in scene.seen:
        if isinstance(event, NominationChanged):
            kept[event.nomination.workload] = event.nomination
        elif isinstance(event, NominationGone):
            kept.pop(event.workload, None)
    return kept


def test_the_next_leader_keeps_the_space_that_was_kept_and_lets_go_of_what_was_given_up(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("w", gpus=2)
            await scene.until_waiting("w")
            await scene.cluster.apply(Plan(nominations=(SPACE,)))
            pod = await note_of(scene, "w", wanted=True)
            assert pod["status"]["nominatedNodeName"] == "node-1"
            async with opened_here(plane, scene.kubectl) as other:
                assert kept_in(other) == {full("w"): SPACE}
                await scene.cluster.apply(Plan(given_up=((full("w"), "main-0"),)))
                pod = await note_of(scene, "w", wanted=False)
                assert "nominatedNodeName" not in pod["status"]
                await other.until(lambda: not kept_in(other), "the other to hear of it")
            assert kept_in(scene) == {}  # it decided it: nobody told it
            async with opened_here(plane, scene.kubectl) as third:
                assert kept_in(third) == {}

    run(test())


def test_space_is_kept_until_its_pod_starts(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("w", gpus=2)
            await scene.until_waiting("w")
            await scene.cluster.apply(Plan(nominations=(SPACE,)))
            await note_of(scene, "w", wanted=True)
            await scene.start(start_of("w", devices=whole(0, 1)))
            await scene.until(lambda: not scene.cluster.cache.in_flight.starts, "the Binding")
            assert (await scene.kubectl.read_pod("w"))["spec"]["nodeName"] == "node-1"
            await note_of(scene, "w", wanted=False)
            await scene.until(lambda: not scene.cluster.cache.nominations.wanted, "the annotation to be gone")
            async with opened_here(plane, scene.kubectl) as other:
                assert kept_in(other) == {}

    run(test())


def test_space_of_a_pod_that_is_not_there_is_taken_back(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.cluster.apply(Plan(nominations=(SPACE,)))
            scene.cluster._publish_now()
            await scene.until(lambda: NominationGone(full("w"), "main-0") in scene.seen, "to hear of it")

    run(test())


def test_space_does_not_come_back_by_itself_when_its_gang_was_incomplete_for_a_while() -> None:
    cache = cache_with_nodes()
    note = {NOMINATION_ANNOTATION: write_nomination(Nomination("default/train", "main-0", "node-1", whole(0)))}
    cache.upsert_pod(cached_pod("w-0", annotations=GANG | note))
    partner = cached_pod("w-1", annotations=GANG)
    cache.upsert_pod(partner)
    assert [event for event in cache.flush() if isinstance(event, NominationChanged)]
    cache.delete_pod(partner)
    assert NominationGone("default/train", "main-0") in cache.flush()
    assert [pod.name for pod in cache.nominations.take_expired()] == ["w-0"]
    cache.upsert_pod(cached_pod("w-2", annotations=GANG))
    assert [type(event) for event in cache.flush()] == [WorkloadChanged]


def test_a_spoilt_annotation_keeps_nothing() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w", annotations={NOMINATION_ANNOTATION: "{not json"}))
    assert [type(event) for event in cache.flush()] == [WorkloadChanged]


def test_a_gang_of_which_a_part_was_bound_is_finished_or_stopped_after_its_grace() -> None:
    """As a killed leader leaves it, and no room for the rest."""
    cache = cache_with_nodes(nodes=1)
    cache.upsert_pod(cached_pod("w-0", gpus=8, node="node-1", phase="Running", annotations=GANG | whole_node()))
    cache.upsert_pod(cached_pod("w-1", gpus=8, annotations=GANG))
    cache.flush(1000)
    assert cache.published.workloads["default/train"].broken_since_s == 1000
    scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
    scheduler.state.patch(cache.whole_state())
    assert not any(decision.plan.evictions for at in (1000, 1030) if (decision := scheduler.cycle(at)))
    decision = scheduler.cycle(1000 + DEFAULT_POLICY.stale_gang_grace_s)
    assert decision is not None
    assert [(each.pod, each.cause) for each in decision.plan.evictions] == [("main-0", EvictionCause.STALE_GANG)]


def test_the_grace_of_a_broken_gang_begins_once_and_ends_when_it_is_whole() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w-0", node="node-1", phase="Running", annotations=GANG | _grant(0)))
    cache.upsert_pod(cached_pod("w-1", annotations=GANG))
    cache.flush(1000)
    cache.upsert_pod(cached_pod("w-1", annotations=GANG, labels={"touched": "yes"}))
    cache.flush(1030)
    assert cache.published.workloads["default/train"].broken_since_s == 1000
    cache.upsert_pod(cached_pod("w-1", node="node-1", phase="Running", annotations=GANG | _grant(1)))
    cache.flush(1040)
    assert cache.published.workloads["default/train"].broken_since_s == 0


def whole_node() -> dict[str, str]:
    from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant

    return {GRANT_ANNOTATION: write_grant(whole(*range(8)))}


def test_space_that_is_given_up_while_it_is_being_written_is_taken_away() -> None:
    """What a watch brings meanwhile is older than the write: it says nothing of what is on its way."""
    written: list[Any] = []
    seen_elsewhere = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        written.append((await request.json())["metadata"]["annotations"][NOMINATION_ANNOTATION])
        await seen_elsewhere.wait()
        return web.json_response({})

    async def test() -> None:
        async with server_that(answer) as address:
            client, cache = Client(ClusterAccess(address, Trust(), FixedCredential(Credential()))), cache_with_nodes()
            writer = NominationWriter(client, cache, lambda: None, lambda *_, **__: None)
            cache.upsert_pod(cached_pod("a"))
            cache.flush()
            kept = Nomination("default/a", "main-0", "node-1", whole(0))
            writer.apply(Plan(nominations=(kept,)))
            await until(lambda: written, "the first write")
            writer.release("default/a")
            cache.upsert_pod(cached_pod("a"))
            cache.flush()
            seen_elsewhere.set()
            await until(lambda: not writer._writer._tasks, "the last write")
            assert written == [write_nomination(kept), None]
            cache.upsert_pod(cached_pod("a", annotations={NOMINATION_ANNOTATION: written[0]}))  # the watch is late
            cache.upsert_pod(cached_pod("a"))
            cache.flush()
            assert cache.published.nominations == {}
            await client.close()

    run(test())


REFUSED_BY_A_POLICY = {
    "code": 422,
    "reason": "Invalid",
    "message": "denied",
    "details": {"causes": [{"message": "no"}]},
}
OF_ANOTHER_POD = {"code": 422, "reason": "Invalid", "details": {"causes": [{"field": "metadata.uid"}]}}


@pytest.mark.parametrize(("status", "is_reported"), [(REFUSED_BY_A_POLICY, True), (OF_ANOTHER_POD, False)])
def test_a_refused_nomination_is_reported_unless_its_pod_is_gone(status: dict[str, Any], is_reported: bool) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(status, status=422)

    async def test() -> None:
        said: list[str] = []
        async with server_that(answer) as address:
            client, cache = Client(ClusterAccess(address, Trust(), FixedCredential(Credential()))), cache_with_nodes()
            writer = NominationWriter(client, cache, lambda: None, lambda event, **_: said.append(event))
            cache.upsert_pod(cached_pod("a"))
            cache.flush()
            writer.apply(Plan(nominations=(Nomination("default/a", "main-0", "node-1", whole(0)),)))
            await until(lambda: not writer._writer._tasks, "the refusal")
            await client.close()
        assert said == (["space-not-kept"] if is_reported else [])

    run(test())


def test_the_server_says_that_a_pod_was_replaced(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            first = await scene.kubectl.pod("w")
            await scene.kubectl.delete("/api/v1/namespaces/default/pods/w")
            body = {"metadata": {"uid": first["metadata"]["uid"], "annotations": {"a": "b"}}}
            for _ in range(2):
                with pytest.raises(ApiError) as refusal:
                    await scene.kubectl.client.patch(
                        "/api/v1/namespaces/default/pods/w/status", msgspec.json.encode(body)
                    )
                assert refusal.value.is_replaced, refusal.value
                await scene.kubectl.pod("w") if refusal.value.is_not_found else None

    run(test())
