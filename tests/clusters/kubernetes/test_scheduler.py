"""The whole product on a real API server: pods come in with kubectl's words and are bound, or say why not."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from tests.clusters.kubernetes.broken_server import line_to
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, is_in_time, run

CERTIFICATE = "client-certificate: admin.crt\n    client-key: admin.key"


@asynccontextmanager
async def prepared(plane: Plane, nodes: int = 2) -> AsyncIterator[Kubectl]:
    client = Client(read_kubeconfig(plane.kubeconfig))
    kubectl = Kubectl(client)
    try:
        await kubectl.clean()
        for number in range(1, nodes + 1):
            await kubectl.node(f"node-{number}")
        yield kubectl
    finally:
        await client.close()


@asynccontextmanager
async def scheduled(
    plane: Plane, home: Path, nodes: int = 2, is_guarded: bool = False
) -> AsyncIterator[tuple[Kubectl, RunningScheduler]]:
    async with prepared(plane, nodes) as kubectl:
        options = SchedulerOptions(str(home), port=0, kubeconfig=str(plane.kubeconfig), is_guarded=is_guarded)
        async with scheduling(options) as kaiwo:
            yield kubectl, kaiwo


async def bound(kubectl: Kubectl, count: int) -> list[Json]:
    """Wait until so many pods have a node."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pods = [pod for pod in (await kubectl.get("/api/v1/pods"))["items"] if pod["spec"].get("nodeName")]
            if len(pods) >= count:
                return pods
            await asyncio.sleep(0.05)


def audit(pods: list[Json]) -> None:
    """No device is given to two pods, and every pod has what it asked for."""
    given: set[tuple[str, str]] = set()
    for pod in pods:
        shares = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
        wanted = int(pod["spec"]["containers"][0]["resources"]["requests"].get("amd.com/gpu", 0))
        assert len(shares) == wanted, pod["metadata"]["name"]
        for share in shares:
            device = (pod["spec"]["nodeName"], share["gpu"])
            assert device not in given, f"{device} was given twice"
            given.add(device)


def test_pods_are_bound_with_their_devices_and_the_rest_say_why_they_wait(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, kaiwo):
            for number in range(5):
                await kubectl.pod(f"p-{number}", gpus=4)
            pods = await bound(kubectl, 4)
            audit(pods)
            waiting = ({f"p-{number}" for number in range(5)} - {pod["metadata"]["name"] for pod in pods}).pop()
            async with asyncio.timeout(PATIENCE_S):
                while "needs 4 GPUs free" not in (found := await kubectl.condition(waiting)).get("message", ""):
                    await asyncio.sleep(0.05)
            assert found["reason"] == "Unschedulable"
            await kubectl.delete(pod_path(pods[0]["metadata"]["name"]))
            audit(await bound(kubectl, 4))
            async with asyncio.timeout(PATIENCE_S):
                while not (await kubectl.read_pod(waiting))["spec"].get("nodeName"):
                    await asyncio.sleep(0.02)
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_a_queue_bounds_what_its_pods_use(plane: Plane, tmp_path: Path) -> None:
    from tests.conftest import ROOT

    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")

    async def test() -> None:
        async with scheduled(plane, tmp_path) as (kubectl, _):
            path, spec = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues", {"resources": {"gpu": {"limit": 1}}}
            body = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": "tight"}}
            await kubectl.create(path, body | {"spec": spec})
            for name in ("a", "b"):
                await kubectl.pod(name, annotations={"kaiwo.ai/queue": "tight"})
            await bound(kubectl, 1)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    conditions = [await kubectl.condition(name) for name in ("a", "b")]
                    found = [each for each in conditions if "left of its limit" in each.get("message", "")]
                    if found:
                        break
                    await asyncio.sleep(0.05)
            assert found[0]["reason"] == "KaiwoWaiting"  # another node would not help
            await kubectl.delete(f"{path}/tight")

    run(test())


def test_scheduling_goes_on_when_the_api_server_was_away(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=4) as (kubectl, kaiwo):
            await kubectl.pod("before")
            await bound(kubectl, 1)
            plane.kill("kube-apiserver")
            await asyncio.to_thread(plane.start_api_server)
            began = asyncio.get_running_loop().time()
            await kubectl.pod("after")
            audit(await bound(kubectl, 2))
            took_s = asyncio.get_running_loop().time() - began
            assert is_in_time(took_s, 6)  # the longest pause of a watch is five seconds
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_a_paused_store_delays_and_loses_nothing(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=4) as (kubectl, kaiwo):
            await asyncio.gather(*(kubectl.pod(f"p-{number}") for number in range(16)))
            plane.kill("etcd", signal.SIGSTOP)
            await asyncio.sleep(2)  # Bindings hang, and some of them run into their time-out
            plane.kill("etcd", signal.SIGCONT)
            audit(await bound(kubectl, 16))
            assert kaiwo.loop.health.failures == 0

    run(test())


def test_watches_that_are_cut_again_and_again_lose_nothing(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with prepared(plane, nodes=4) as kubectl, line_to(plane) as line:
            shaky = plane.write_kubeconfig("shaky", CERTIFICATE, server=f"https://127.0.0.1:{line.port}")
            options = SchedulerOptions(str(tmp_path), port=0, kubeconfig=str(shaky))
            async with scheduling(options) as kaiwo:
                for number in range(12):
                    await kubectl.pod(f"p-{number}")
                    await asyncio.sleep(0.05)
                    line.cut()
                audit(await bound(kubectl, 12))
                assert kaiwo.loop.health.failures == 0

    run(test())


def test_pods_share_a_gpu_only_with_those_whom_every_rule_allows(plane: Plane, tmp_path: Path) -> None:
    """Of the pod itself, of a queue and of the node; the one that finds no place says which queues are in its way."""
    from tests.conftest import ROOT

    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    queues = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"

    async def share(kubectl: Kubectl, name: str, **notes: str) -> str:
        """The GPU of a new pod with a share."""
        keys = {"gpu_share_with": "kaiwo.ai/gpu-share-with", "queue": "kaiwo.ai/queue"}
        annotations = {keys[key]: value for key, value in notes.items()} | {"kaiwo.ai/gpu-fraction": "0.2"}
        await kubectl.pod(name, gpus=0, annotations=annotations)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                pod = await kubectl.read_pod(name)
                if pod["spec"].get("nodeName"):
                    (given,) = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
                    return str(given["gpu"])
                await asyncio.sleep(0.05)

    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=0) as (kubectl, kaiwo):
            for name, rule in (("lab", ["queue"]), ("ops", [])):
                body = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": name}}
                await kubectl.create(queues, body | {"spec": {"shareWith": rule}})
            labels = {"kaiwo.ai/gpu-sharing": "true", "kaiwo.ai/gpu-share-with": "namespace"}
            await kubectl.node("shared", gpus=3, labels=labels)
            first, second = await share(kubectl, "a", queue="lab"), await share(kubectl, "b", queue="ops")
            assert first != second
            assert await share(kubectl, "c", queue="lab") == first
            alone = await share(kubectl, "d", queue="ops", gpu_share_with="nobody")
            assert alone not in (first, second)
            note = {"kaiwo.ai/gpu-fraction": "0.2", "kaiwo.ai/queue": "lab", "kaiwo.ai/gpu-share-with": "nobody"}
            await kubectl.pod("e", gpus=0, annotations=note)
            async with asyncio.timeout(PATIENCE_S):
                while "with whom it may not share" not in (said := (await kubectl.condition("e")).get("message", "")):
                    await asyncio.sleep(0.05)
            assert "of queues lab, ops: it asked to share a GPU with nobody" in said
            await kubectl.delete(pod_path("d"))
            async with asyncio.timeout(PATIENCE_S):
                while not (await kubectl.read_pod("e"))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            assert kaiwo.loop.health.failures == 0
            for name in ("lab", "ops"):
                await kubectl.delete(f"{queues}/{name}")

    run(test())


def test_the_threads_and_the_memory_of_a_share_keep_to_the_limits_of_its_queue(plane: Plane, tmp_path: Path) -> None:
    """With no webhook that refuses more. The threads are part of its grant."""
    from tests.conftest import ROOT

    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    queues = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"

    async def test() -> None:
        async with scheduled(plane, tmp_path, nodes=0) as (kubectl, _):
            body = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue", "metadata": {"name": "lab"}}
            await kubectl.create(
                queues, body | {"spec": {"maxThreads": 60, "defaultThreads": 20, "maxShareMemory": "50Gi"}}
            )
            labels = {"kaiwo.ai/gpu-sharing": "true", "nvidia.com/gpu.product": "NVIDIA-H200"}
            await kubectl.node("shared", gpus=1, resource="nvidia.com/gpu", labels=labels)
            asked = {"large": "0.4", "plain": "0.1", "few": "0.2", "more": "0.2", "most": "0.2"}
            threads = {"few": "10", "more": "50", "most": "90"}
            for name, fraction in asked.items():
                notes = {"kaiwo.ai/gpu-fraction": fraction, "kaiwo.ai/queue": "lab"}
                notes |= {"kaiwo.ai/gpu-threads": threads[name]} if name in threads else {}
                await kubectl.pod(name, gpus=0, annotations=notes)
            given = {}
            for pod in await bound(kubectl, 4):
                (share,) = msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])
                given[pod["metadata"]["name"]] = (share["milli"], share["threads_milli"])
            assert given == {"plain": (100, 200), "few": (200, 100), "more": (200, 500), "most": (200, 600)}
            await kubectl.delete(f"{queues}/lab")

    run(test())
