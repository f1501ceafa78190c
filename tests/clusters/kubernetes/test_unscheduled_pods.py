"""Pods that the scheduler is not told of are listed all the same, with the sentence that stands on them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.api.views.answers import Page
from kaiwo.api.views.workloads import WhyView, WorkloadView
from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.workload_unit import GATED
from kaiwo.clusters.kubernetes.cluster import Records
from kaiwo.model.workload_record import WorkloadState
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import pod_path
from tests.clusters.kubernetes.running_scheduler import until_said
from tests.clusters.kubernetes.test_scheduler import scheduled
from tests.controlplane.plane import Plane
from tests.waiting import run

ALONE = {"kaiwo.ai/gang": "gg", "kaiwo.ai/gang-size": "2"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}


def records_of(cache: ClusterCache) -> Records:
    return Records(cache)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"annotations": ALONE}, "1 of the 2 that start together do"),
        ({"gpus": 0, "annotations": {"kaiwo.ai/gpu-fraction": "x"}}, "gpu-fraction"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"volumes": [CLAIM]}, "missing"),
        ({"schedulingGates": [{"name": "example.com/wait"}]}, GATED),
        ({"annotations": {"kaiwo.ai/priority": "high"}}, "priority"),
    ],
)
def test_a_pod_that_is_kept_back_is_listed_as_held(pod: dict[str, Any], words: str) -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("solo", **pod))
    assert cache.flush() == ()
    records = records_of(cache)
    (record,) = records.records()
    assert record.state is WorkloadState.HELD
    assert words in record.message
    assert records.record("default/solo") == record  # by the pod's name, too, where that is another
    assert records.records_since(0).records == [record]
    cache.delete_pod(cached_pod("solo", **pod))
    cache.flush()
    assert records.records() == []
    assert records.records_since(0).gone == [record.workload.name]


def test_a_gang_that_becomes_whole_is_held_no_longer() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", annotations=ALONE))
    cache.flush()
    cache.upsert_pod(cached_pod("b", annotations=ALONE))
    cache.flush()
    (record,) = records_of(cache).records()
    assert (record.state, record.workload.pods, record.message) == (WorkloadState.WAITING, 2, "")


def test_why_says_what_the_condition_says(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, kaiwo):
            await kubectl.pod("solo", annotations=ALONE)
            await until_said(kubectl, "solo", "1 of the 2 that start together do")
            said = (await kubectl.condition("solo"))["message"]
            listed = await ask(kaiwo, "/workloads", Page[WorkloadView])
            assert [(each.name, each.state, each.reason) for each in listed.items] == [("default/gg", "held", said)]
            for name in ("gg", "solo"):
                found = await ask(kaiwo, f"/workloads/default/{name}/why", WhyView)
                assert (found.state, found.answer) == ("held", f"gg is waiting: {said}")

    run(test())


def test_a_pod_whose_gate_is_gone_says_what_it_waits_for_now(plane: Plane, tmp_path: Path) -> None:
    """The server wrote on it that it is gated, and nobody but its scheduler takes that away."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, _):
            for name in ("a", "b"):
                await kubectl.pod(name, annotations=ALONE, schedulingGates=[{"name": "example.com/wait"}])
            assert (await kubectl.condition("a"))["reason"] == "SchedulingGated"
            await kubectl.patch(pod_path("a"), {"spec": {"schedulingGates": []}})
            await until_said(kubectl, "a", "1 of the 2 pods of gang default/gg that start together cannot be tried")
            assert (await kubectl.condition("a"))["reason"] == "KaiwoWaiting"
            assert (await kubectl.condition("b"))["reason"] == "SchedulingGated"

    run(test())


async def ask(kaiwo: Any, path: str, kind: Any) -> Any:
    """As the command line asks."""
    import aiohttp

    token = kaiwo.context.access.token
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session,
        session.get(f"{kaiwo.url}/api/v1{path}") as answer,
    ):
        return msgspec.json.decode(await answer.read(), type=kind)
