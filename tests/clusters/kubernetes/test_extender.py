"""The extender protocol with the real kube-scheduler: it places, and the devices are chosen and written at bind."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from kaiwo.app.extender_tls import extender_context
from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.controlplane.plane import Plane, free_ports
from tests.waiting import PATIENCE_S, run

THEIRS = "default-scheduler"
SHARED = {"labels": {"kaiwo.ai/gpu-sharing": "true"}}


@pytest.mark.parametrize("knows_nodes", [True, False], ids=["names", "whole-nodes"])
def test_pods_get_their_devices_when_kube_scheduler_binds_them(plane: Plane, tmp_path: Path, knows_nodes: bool) -> None:
    async def test() -> None:
        async with extended(plane, tmp_path, knows_nodes) as (kubectl, _):
            for number in range(6):
                await kubectl.pod(f"p-{number}", gpus=3, schedulerName=THEIRS)
            bound = await until_bound(kubectl, 4)
            audit(bound, 3)  # two of three on each of two nodes: what is left of a node does not hold a third
            await kubectl.pod("plain", gpus=0, schedulerName=THEIRS)
            plain = await until_bound(kubectl, 1, "plain")
            assert GRANT_ANNOTATION not in plain[0]["metadata"].get("annotations", {})
            waiting = [
                name for name in (f"p-{n}" for n in range(6)) if name not in {p["metadata"]["name"] for p in bound}
            ]
            condition = await until_condition(kubectl, waiting[0])
            assert "GPUs free" in condition["message"] or "Insufficient amd.com/gpu" in condition["message"]

    run(test())


def test_shares_of_one_device_are_counted(plane: Plane, tmp_path: Path) -> None:
    """kube-scheduler knows nothing of shares: three halves on two devices are three pods, and the next ones wait."""

    async def test() -> None:
        async with extended(plane, tmp_path, nodes=0) as (kubectl, _):
            await kubectl.node("shared", gpus=2, **SHARED)
            await kubectl.node("whole", gpus=2)
            for number in range(6):
                note = {"kaiwo.ai/gpu-fraction": "0.5"}
                await kubectl.pod(f"s-{number}", gpus=0, schedulerName=THEIRS, annotations=note)
            bound = await until_bound(kubectl, 4)
            assert {pod["spec"]["nodeName"] for pod in bound} == {"shared"}
            held: dict[str, int] = {}
            for pod in bound:
                (share,) = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
                held[share["gpu"]] = held.get(share["gpu"], 0) + share["milli"]
            assert held == {"gpu-0": 1000, "gpu-1": 1000}
            waiting = {f"s-{number}" for number in range(6)} - {pod["metadata"]["name"] for pod in bound}
            said = await until_condition(kubectl, min(waiting), "no node agent shares GPUs on this node")
            message = said["message"]
            assert "too few free GPUs for the pod's request (0.5 of 1)" in message

    run(test())


def test_a_slip_keeps_a_pod_from_every_node(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with extended(plane, tmp_path) as (kubectl, _):
            await kubectl.pod("slip", schedulerName=THEIRS, annotations={"kaiwo.ai/gpu-fraction": "half"})
            message = (await until_condition(kubectl, "slip"))["message"]
            assert 'kaiwo.ai/gpu-fraction is "half"' in message

    run(test())


def test_room_is_made_only_where_the_devices_come_free(plane: Plane, tmp_path: Path) -> None:
    """kube-scheduler would stop a pod on either node; on one of them a share that it does not see stays."""

    async def test() -> None:
        async with extended(plane, tmp_path, nodes=0) as (kubectl, _):
            for name in ("one", "two"):
                await kubectl.node(name, gpus=2, **SHARED)
                low = {"nodeSelector": {"kubernetes.io/hostname": name}, "terminationGracePeriodSeconds": 0}
                await kubectl.pod(f"low-{name}", gpus=1, schedulerName=THEIRS, **low)
            await kubectl.pod(
                "stays", gpus=0, schedulerName=THEIRS, annotations={"kaiwo.ai/gpu-memory": "100Gi"},
                nodeSelector={"kubernetes.io/hostname": "one"}, priorityClassName="t-extender",
            )  # fmt: skip
            await until_bound(kubectl, 3)
            await kubectl.pod("high", gpus=2, schedulerName=THEIRS, priorityClassName="t-extender")
            (high,) = await until_bound(kubectl, 1, "high")
            assert high["spec"]["nodeName"] == "two"
            names = {pod["metadata"]["name"] for pod in (await kubectl.get("/api/v1/pods"))["items"]}
            assert names == {"low-one", "stays", "high"}

    run(test())


def test_both_schedulers_never_give_one_device_twice(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with extended(plane, tmp_path, nodes=3) as (kubectl, kaiwo):
            names = [f"{kind}-{number}" for number in range(12) for kind in ("ours", "theirs")]
            await asyncio.gather(
                *(
                    kubectl.pod(name, gpus=1, schedulerName=THEIRS if name.startswith("theirs") else "kaiwo-scheduler")
                    for name in names
                )
            )
            audit(await until_bound(kubectl, 24), 1)
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_whoever_does_not_lead_says_so(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        (port,) = free_ports(1)
        async with (
            cleaned(plane),
            scheduling(_options(plane, tmp_path / "a", 0, leader_elect=True)),
            scheduling(_options(plane, tmp_path / "b", port, leader_elect=True)),
            as_kube_scheduler(port, tmp_path / "b") as session,
            session.post("/filter", data=b"{}") as answer,
        ):
            assert (answer.status, await answer.text()) == (503, "this replica of Kaiwo does not lead")

    run(test())


@pytest.mark.parametrize("version", [{}, {"resourceVersion": ""}, {"resourceVersion": "x"}])
def test_a_pod_that_was_never_stored_gets_an_answer(plane: Plane, tmp_path: Path, version: dict[str, str]) -> None:
    """Whoever asks what would be has no version to show."""
    pod = {
        "metadata": {"name": "would-be", "namespace": "default", "uid": "u"} | version,
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"amd.com/gpu": "1"}}}]},
    }
    asked = {"Pod": pod, "NodeNames": ["node-1"]}
    victims = {"Pod": pod, "NodeNameToMetaVictims": {"node-1": {"Pods": []}}}

    async def test() -> None:
        (port,) = free_ports(1)
        async with cleaned(plane) as kubectl:
            await kubectl.node("node-1")
            async with (
                scheduling(_options(plane, tmp_path / "a", port)),
                as_kube_scheduler(port, tmp_path / "a") as session,
            ):
                for verb, body in (("filter", asked), ("prioritize", asked), ("preempt", victims)):
                    async with session.post(f"/{verb}", json=body) as answer:
                        assert (verb, answer.status) == (verb, 200)
                        assert "node-1" in await answer.text()

    run(test())


def test_nobody_without_the_certificate_is_answered(plane: Plane, tmp_path: Path) -> None:
    """Whoever is answered may bind any pod to any node, and other users of this machine reach its loopback, too."""

    async def test() -> None:
        (port,) = free_ports(1)
        files = tmp_path / "a" / "extender"
        async with cleaned(plane), scheduling(_options(plane, tmp_path / "a", port)):
            for file in (files, *files.iterdir()):
                assert file.stat().st_mode & 0o077 == 0, file
            async with as_kube_scheduler(port, tmp_path / "a") as session, session.post("/bind", data=b"[]") as answer:
                assert answer.status == 400
            trusting = ssl.create_default_context(cafile=str(files / "ca.crt"))
            forged, other = ssl.create_default_context(cafile=str(files / "ca.crt")), tmp_path / "other"
            extender_context(str(other))  # a folder of another user, with the same names
            forged.load_cert_chain(other / "extender" / "client.crt", other / "extender" / "client.key")
            for url, context in (("http", None), ("https", trusting), ("https", forged)):
                connector = aiohttp.TCPConnector(ssl=context or True)
                async with aiohttp.ClientSession(f"{url}://127.0.0.1:{port}", connector=connector) as session:
                    with pytest.raises(aiohttp.ClientError):
                        await session.post("/bind", data=b"{}")
        before = {file.name: file.read_bytes() for file in files.iterdir()}
        extender_context(str(tmp_path / "a"))  # kube-scheduler keeps what it read at its start
        assert {file.name: file.read_bytes() for file in files.iterdir()} == before

    run(test())


def as_kube_scheduler(port: int, home: Path) -> aiohttp.ClientSession:
    """With the certificate in that home."""
    files = home / "extender"
    context = ssl.create_default_context(cafile=str(files / "ca.crt"))
    context.load_cert_chain(files / "client.crt", files / "client.key")
    return aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=aiohttp.TCPConnector(ssl=context))


@asynccontextmanager
async def cleaned(plane: Plane) -> AsyncIterator[Kubectl]:
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        yield kubectl
        await kubectl.clean()


@asynccontextmanager
async def extended(
    plane: Plane, folder: Path, knows_nodes: bool = True, nodes: int = 2
) -> AsyncIterator[tuple[Kubectl, RunningScheduler]]:
    """A kube-scheduler that asks us."""
    (port,) = free_ports(1)
    important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(important | {"metadata": {"name": "t-extender"}}))
    async with cleaned(plane) as kubectl:
        for number in range(1, nodes + 1):
            await kubectl.node(f"node-{number}")
        async with scheduling(_options(plane, folder, port)) as kaiwo:
            path = folder / "kube-scheduler.yaml"
            path.write_text(yaml.safe_dump(_configuration(plane, port, knows_nodes, folder / "extender")))
            plane.run("kube-scheduler", f"--config={path}", "--secure-port=0", "--v=1")
            try:
                yield kubectl, kaiwo
            finally:
                plane.kill("kube-scheduler")


def _options(plane: Plane, home: Path, port: int, leader_elect: bool = False) -> SchedulerOptions:
    home.mkdir(exist_ok=True)
    return SchedulerOptions(
        str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=leader_elect, extender_port=port
    )


def _configuration(plane: Plane, port: int, knows_nodes: bool, files: Path) -> dict[str, Any]:
    """The one in docs/kubernetes.md, on this port."""
    shown = {
        "caFile": str(files / "ca.crt"),
        "certFile": str(files / "client.crt"),
        "keyFile": str(files / "client.key"),
    }
    extender = {
        "urlPrefix": f"https://127.0.0.1:{port}", "enableHTTPS": True, "tlsConfig": shown, "filterVerb": "filter",
        "prioritizeVerb": "prioritize", "weight": 1, "preemptVerb": "preempt", "bindVerb": "bind",
        "nodeCacheCapable": knows_nodes, "httpTimeout": "5s",
    }  # fmt: skip
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "extenders": [extender],
    }


async def until_bound(kubectl: Kubectl, count: int, name: str = "") -> list[Json]:
    for _ in range(int(PATIENCE_S / 0.05)):
        every = (await kubectl.get("/api/v1/pods"))["items"]
        named = [pod for pod in every if not name or pod["metadata"]["name"] == name]
        bound = [pod for pod in named if pod["spec"].get("nodeName")]
        if len(bound) >= count:
            return bound
        await asyncio.sleep(0.05)
    waiting = [(pod["metadata"]["name"], pod["status"]) for pod in named if not pod["spec"].get("nodeName")]
    raise AssertionError(f"{len(bound)} are bound, and these wait: {waiting}")


async def until_condition(kubectl: Kubectl, name: str, words: str = " ") -> Json:
    async with asyncio.timeout(PATIENCE_S):
        while words not in (found := await kubectl.condition(name)).get("message", ""):
            await asyncio.sleep(0.05)
    return found


def audit(pods: list[Json], gpus: int) -> None:
    """Every pod has its devices, and none is given twice."""
    given: set[tuple[str, str]] = set()
    for pod in pods:
        shares = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
        assert len(shares) == gpus, pod["metadata"]["name"]
        for share in shares:
            device = (pod["spec"]["nodeName"], share["gpu"])
            assert device not in given, f"{device} was given twice"
            given.add(device)
