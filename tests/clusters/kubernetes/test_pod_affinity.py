"""Rules between pods on a real API server: pods are bound by them, or say which one keeps them waiting."""

import asyncio
from pathlib import Path
from typing import Any

from tests.clusters.kubernetes.kubectl_cluster import Kubectl, pod_path
from tests.clusters.kubernetes.test_scheduler import bound, scheduled
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

HOST, REQUIRED = "kubernetes.io/hostname", "requiredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}


def terms(kind: str, **more: Any) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": HOST, "labelSelector": WEB} | more]}}}


async def node_of(kubectl: Kubectl, name: str, namespace: str = "default") -> str:
    async with asyncio.timeout(PATIENCE_S):
        while not (node := (await kubectl.read_pod(name, namespace))["spec"].get("nodeName", "")):
            await asyncio.sleep(0.05)
    return str(node)


async def says(kubectl: Kubectl, name: str, words: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while words not in (found := await kubectl.condition(name)).get("message", ""):
            await asyncio.sleep(0.05)
    return found


def test_pods_stay_apart_and_who_finds_no_node_says_so(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, kaiwo):
            for number in range(3):
                await kubectl.pod(f"web-{number}", labels={"app": "web"}, **terms("podAntiAffinity"))
            pods = await bound(kubectl, 2)
            assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
            waiting = ({f"web-{number}" for number in range(3)} - {pod["metadata"]["name"] for pod in pods}).pop()
            found = await says(kubectl, waiting, "excluded by pod anti-affinity")
            assert found["reason"] == "Unschedulable"  # another node would help
            assert "default app=web" in found["message"]
            await kubectl.delete(pod_path(pods[0]["metadata"]["name"]))
            assert await node_of(kubectl, waiting) == pods[0]["spec"]["nodeName"]
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_a_pod_comes_near_to_one_that_starts_later_in_another_namespace(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        plane.kubectl("create", "namespace", "near-red", check=False)
        plane.kubectl("label", "namespace", "near-red", "team=red", "--overwrite")
        async with scheduled(plane, tmp_path, nodes=3) as (kubectl, kaiwo):
            near = terms("podAffinity", namespaceSelector={"matchLabels": {"team": "red"}})
            await kubectl.pod("client", **near)
            await says(kubectl, "client", "none of the pods nearby")
            only = {"kubernetes.io/hostname": "node-3"}
            await kubectl.pod("server", namespace="near-red", labels={"app": "web"}, nodeSelector=only)
            assert await node_of(kubectl, "client") == "node-3"
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_a_port_of_a_node_goes_to_one_pod_and_a_spread_is_kept(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, kaiwo):
            ports = [{"containerPort": 80, "hostPort": 8080}]
            for name in ("a", "b", "c"):
                await kubectl.pod(name, containers=[{"name": "main", "image": "work", "ports": ports}])
            pods = await bound(kubectl, 2)
            assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
            waiting = ({"a", "b", "c"} - {pod["metadata"]["name"] for pod in pods}).pop()
            await says(kubectl, waiting, "TCP/8080")
            spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
            for number in range(6):
                await kubectl.pod(f"web-{number}", labels={"app": "web"}, topologySpreadConstraints=[spread])
            nodes = [await node_of(kubectl, f"web-{number}") for number in range(6)]
            assert sorted(nodes) == 3 * ["node-1"] + 3 * ["node-2"]
            assert kaiwo.loop.health.failures == 0

    run(test())
