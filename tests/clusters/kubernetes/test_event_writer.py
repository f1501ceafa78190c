"""What is said about a pod gets through, also when the server is not well."""

import asyncio
from collections import Counter

from aiohttp import web

from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.credentials import ClusterAccess, Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.writers.event_writer import EventWriter
from kaiwo.clusters.kubernetes.writers.pod_writes import AcceptedWrite
from kaiwo.model.plan import Start
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.broken_server import server_that
from tests.waiting import run, until

TROUBLE = 5


def test_a_sentence_that_a_server_in_trouble_refused_is_said_again() -> None:
    asked: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked[request.method] += 1
        is_well = request.method != "PATCH" or asked["PATCH"] > TROUBLE
        return web.json_response({}, status=200 if is_well else 500)

    async def test() -> None:
        async with server_that(answer) as address:
            client, cache = Client(ClusterAccess(address, Trust(), FixedCredential(Credential()))), cache_with_nodes()
            writer = EventWriter(client, cache, lambda: 0, lambda *_, **__: None)
            writer.start()
            try:
                # A gate that is gone: the server's own word stays on the pod until ours replaces it.
                cache.upsert_pod(cached_pod("a", annotations={"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2"}))
                cache.flush()
                writer.publish_changes()
                await until(lambda: asked["POST"], "the Event that comes after the condition")
                assert asked["PATCH"] == TROUBLE + 1
            finally:
                await writer.close()
                await client.close()
                await asyncio.sleep(0)

    run(test())


def test_a_namespace_that_goes_is_no_failure_and_others_name_their_pod() -> None:
    """What is made in it is refused to everybody, for each of its pods: that is how namespaces end."""
    words = 'events "a." is forbidden: unable to create new content in namespace default because it is being terminated'
    refusals = [{"code": 403, "reason": "Forbidden", "message": words}, {"code": 403, "message": "not you"}]
    told: list[dict[str, object]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH" or not refusals:
            return web.json_response({})
        return web.json_response(refusals.pop(0), status=403)

    async def test() -> None:
        async with server_that(answer) as address:
            client, cache = Client(ClusterAccess(address, Trust(), FixedCredential(Credential()))), cache_with_nodes()
            writer = EventWriter(
                client, cache, lambda: 0, lambda event, **fields: told.append({"event": event, **fields})
            )
            writer.start()
            try:
                for name in ("a", "b"):
                    pod = cached_pod(name)
                    cache.upsert_pod(pod)
                    writer.publish_outcome(AcceptedWrite(pod, start=Start(f"default/{name}", "main-0", "node-1", ())))
                    await until(lambda: not writer._events and not writer._busy, "the Event")
                assert (writer.failures, refusals) == (1, [])
            finally:
                await writer.close()
                await client.close()

    run(test())
    assert [(line["event"], line["pod"]) for line in told] == [("voice-failed", "default/b")]
