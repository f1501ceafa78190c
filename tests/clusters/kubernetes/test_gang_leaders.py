"""Leaders of gangs: which they are, and that their Bindings come before the others'."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache
from kaiwo.clusters.kubernetes.client import Client, ClusterAccess, Credential
from kaiwo.clusters.kubernetes.client.credentials import FixedCredential, Trust
from kaiwo.clusters.kubernetes.writers.binder import Binder
from kaiwo.clusters.kubernetes.writers.pod_writes import PodWrites
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Start
from kaiwo.model.workload import Workload
from tests.clusters.kubernetes.api_objects import DECODER, cache_with_nodes, cached_pod
from tests.clusters.kubernetes.broken_server import server_that
from tests.conformance.gangs.replay import replay
from tests.conformance.gangs.stories import STORIES
from tests.waiting import PATIENCE_S, run

GANG = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "3"}
AS_IT_IS = {
    "metadata": {
        "name": "w-1",
        "namespace": "default",
        "uid": "uid-w-1",
        "resourceVersion": "9999999",
        "annotations": GANG | {"kaiwo.ai/leader": "true"},
    },
    "spec": {"schedulerName": SCHEDULER, "containers": [{"name": "c"}]},
    "status": {"phase": "Pending"},
}


@pytest.mark.parametrize(
    ("story", "leader"),
    [
        ("each replica is a gang", "leader"),
        ("with the autoscaler, the smallest number", "head"),
        ("exclusive placement, the leader first", "leader"),
    ],
)
def test_the_roles_that_lead(story: str, leader: str) -> None:
    groups, _ = replay(STORIES[story]["parents"], STORIES[story]["pods"])
    assert groups
    for group in groups:
        assert [role.name for role in group.roles if role.leads] == [leader]
        assert group.roles[0].name == leader


def led_gang() -> tuple[ClusterCache, Workload]:
    cache = cache_with_nodes()
    for number in range(3):
        leads = {"kaiwo.ai/leader": "true"} if number == 1 else {}
        cache.upsert_pod(cached_pod(f"w-{number}", annotations=GANG | leads))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    return cache, told.workload


def test_a_pod_that_says_so_leads() -> None:
    _, workload = led_gang()
    assert [(role.name, role.count, role.leads) for role in workload.roles] == [("leader", 1, True), ("main", 2, False)]


def bind_all(answer_to_leader: Callable[[], web.Response]) -> tuple[list[str], list[str], ClusterCache]:
    """Bind a gang of three; returns what was asked before the leader was answered, and in the end."""
    cache, workload = led_gang()
    early: list[str] = []
    asked: list[str] = []

    async def test() -> None:
        leader_is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def answer(request: web.BaseRequest) -> web.Response:
            if request.method == "POST":
                asked.append(request.path.split("/")[-2])
            if request.path.endswith("w-1/binding"):
                leader_is_asked.set()
                await may_answer.wait()
                return answer_to_leader()
            if request.method == "GET":  # whoever was refused looks how the pod is
                return web.json_response(AS_IT_IS)
            return web.json_response({})

        async with server_that(answer) as address:
            client = Client(ClusterAccess(address, Trust(), FixedCredential(Credential())))
            writes = PodWrites(client, cache, DECODER, cache.flush, lambda _: None, lambda *_, **__: None)
            slots = [f"{role.name}-{at}" for role in reversed(workload.roles) for at in range(role.count)]
            share = [(Share(f"gpu-{at}", 1000, 192 * 1024),) for at in range(3)]
            starts = [Start(workload.name, slot, "node-1", share[at]) for at, slot in enumerate(slots)]
            assert len(Binder(writes, lambda: 100).bind(starts)) == 3
            await leader_is_asked.wait()
            early.extend(asked)
            may_answer.set()
            async with asyncio.timeout(PATIENCE_S):
                while writes._tasks:
                    await asyncio.gather(*writes._tasks, return_exceptions=True)
            await client.close()

    run(test())
    return early, asked, cache


def test_the_others_are_bound_after_their_leader() -> None:
    early, asked, cache = bind_all(lambda: web.json_response({}))
    assert early == ["w-1"]
    assert sorted(asked[1:]) == ["w-0", "w-2"]
    assert len(cache.in_flight.starts) == 3


def test_where_the_leader_is_refused_the_others_wait_with_it() -> None:
    def refuse() -> web.Response:
        return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)

    _, asked, cache = bind_all(refuse)
    assert "w-0" not in asked
    assert "w-2" not in asked
    assert cache.in_flight.starts == {}
    assert "default/train" in cache.start_backoff.refusals
