"""Nodes of which more is held than they have, and the kubelet's way to count GPUs, with the whole product."""

import asyncio
from pathlib import Path

import msgspec

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.test_scheduler import bound, scheduled
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

RDMA = "rdma/hca"


async def _offer(kubectl: Kubectl, node: str, **amounts: str | int) -> None:
    """What a device plugin would change. `rdma` stands for the resource of that name."""
    names = {"rdma": RDMA, "gpus": "amd.com/gpu", "shares": "kaiwo.ai/gpu-share"}
    named = {names[key]: str(value) for key, value in amounts.items()}
    await kubectl.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": named, "capacity": named}})


def _container(**requests: str) -> list[Json]:
    amounts = {key.replace("_", "/"): value for key, value in requests.items()}
    return [{"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}]


async def _until_bound(kubectl: Kubectl, name: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while not (node := (await kubectl.read_pod(name))["spec"].get("nodeName")):
            await asyncio.sleep(0.02)
    return str(node)


def test_a_node_that_lost_a_device_takes_as_many_pods_as_the_kubelet_does(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=1) as (kubectl, kaiwo):
            for number in range(8):
                await kubectl.pod(f"s-{number}")
            pods = {pod["metadata"]["name"]: pod for pod in await bound(kubectl, 8)}
            last = next(name for name, pod in pods.items() if '"gpu-7"' in str(pod["metadata"]["annotations"]))
            for name in [each for each in pods if each != last][:3]:
                await kubectl.delete(pod_path(name))
            await _offer(kubectl, "node-1", gpus=7)
            for name in ("t-0", "t-1", "t-2"):
                await kubectl.pod(name)
            await bound(kubectl, 7)
            async with asyncio.timeout(PATIENCE_S):
                while not any([(await kubectl.condition(f"t-{number}")).get("message") for number in range(3)]):
                    await asyncio.sleep(0.05)
            assert len(await bound(kubectl, 7)) == 7
            assert not kaiwo.cluster.cache.start_backoff.refusals

    run(test())


def test_what_others_hold_too_much_of_keeps_nobody_away(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=1) as (kubectl, _):
            await _offer(kubectl, "node-1", rdma=1)
            await kubectl.pod("first", containers=_container(rdma_hca="1"))
            await _until_bound(kubectl, "first")
            await _offer(kubectl, "node-1", rdma=0)
            await kubectl.pod("greedy", containers=_container(memory="3Ti"), schedulerName="other", nodeName="node-1")
            amounts = {"amd.com/gpu": "1"}
            resources = {"requests": amounts, "limits": amounts}
            await kubectl.pod("second", containers=[{"name": "main", "image": "work", "resources": resources}])
            assert await _until_bound(kubectl, "second") == "node-1"

    run(test())


def test_a_share_beside_the_vendors_resource_is_a_whole_gpu(plane: Plane, tmp_path: Path) -> None:
    """The kubelet counts `amd.com/gpu: 1` as one, whatever the annotation says: of 10 pods 8 fit."""

    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=0) as (kubectl, _):
            await kubectl.node("node-1", labels={"kaiwo.ai/gpu-sharing": "true"})
            for number in range(10):
                await kubectl.pod(f"h-{number}", annotations={"kaiwo.ai/gpu-fraction": "0.5"})
            await bound(kubectl, 8)
            async with asyncio.timeout(PATIENCE_S):
                while sum([bool((await kubectl.condition(f"h-{at}")).get("message")) for at in range(10)]) < 2:
                    await asyncio.sleep(0.05)
            assert len(await bound(kubectl, 8)) == 8

    run(test())


def test_whole_gpus_are_shared_by_two_where_an_agent_serves_shares_and_alone_by_the_vendors_resource(
    plane: Plane, tmp_path: Path
) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=0) as (kubectl, _):
            await kubectl.node("served", gpus=1, labels={"kaiwo.ai/gpu-sharing": "true"})
            await _offer(kubectl, "served", shares=100)
            notes = {"kaiwo.ai/gpu-sharing": "true", "kaiwo.ai/gpu-devices": "1"}
            resources = {"limits": {"kaiwo.ai/gpu-share": "1"}}
            for name in ("a", "b", "c"):
                container = {"name": "main", "image": "work", "resources": resources}
                await kubectl.pod(name, containers=[container], annotations=notes)
            pods = await bound(kubectl, 2)
            assert [_granted(pod) for pod in pods] == [[("gpu-0", 500)]] * 2
            third = ({"a", "b", "c"} - {pod["metadata"]["name"] for pod in pods}).pop()
            async with asyncio.timeout(PATIENCE_S):
                while "needs 0.5 GPU free" not in (await kubectl.condition(third)).get("message", ""):
                    await asyncio.sleep(0.05)
            await kubectl.node("plain", gpus=1)
            await kubectl.pod("alone", annotations={"kaiwo.silogen.ai/gpu-sharing": "true"})
            assert await _until_bound(kubectl, "alone") == "plain"
            assert _granted(await kubectl.read_pod("alone")) == [("gpu-0", 1000)]

    run(test())


def _granted(pod: Json) -> list[tuple[str, int]]:
    shares = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
    return [(share["gpu"], share["milli"]) for share in shares]


def test_whoever_has_others_stopped_starts_in_their_place(plane: Plane, tmp_path: Path) -> None:
    """Running work must not be stopped for somebody whom the last look at the node then refuses."""

    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=1) as (kubectl, kaiwo):
            await _offer(kubectl, "node-1", rdma=1)
            await kubectl.pod("holder", containers=_container(rdma_hca="1"))
            await kubectl.pod("low", gpus=8, annotations={"kaiwo.ai/priority": "1"})
            await bound(kubectl, 2)
            await _offer(kubectl, "node-1", rdma=0)
            await kubectl.phase("low", "Running")
            await kubectl.pod("high", gpus=8, annotations={"kaiwo.ai/priority": "900"})
            async with asyncio.timeout(PATIENCE_S):
                while not (await kubectl.read_pod("low"))["metadata"].get("deletionTimestamp"):
                    await asyncio.sleep(0.02)
            await kubectl.delete(pod_path("low"))  # as its kubelet would
            assert await _until_bound(kubectl, "high") == "node-1"
            assert not kaiwo.cluster.cache.start_backoff.refusals

    run(test())
