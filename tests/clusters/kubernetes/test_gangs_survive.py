"""A running gang that loses a pod gets it back: on a real API server, with the real Job controller."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.controlplane.plane import MissingError, Plane, find_programs, running_plane
from tests.waiting import PATIENCE_S, run

PODS, GPUS = 12, 8
POLICY = "staleGangGrace: 3s"

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def controlled_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """An API server with the Job controller of Kubernetes."""
    try:
        find_programs()
    except MissingError as error:
        pytest.skip(str(error))
    with running_plane(tmp_path_factory.mktemp("jobs")) as plane:
        plane.start_controllers("--controllers=job-controller")
        yield plane


def job(name: str, pods: int, gpus: int) -> Json:
    amounts = {"cpu": "1", "memory": "1Gi", "amd.com/gpu": str(gpus)}
    container = {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
    template: Json = {"spec": {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def members(kubectl: Kubectl) -> list[Json]:
    found = (await kubectl.get("/api/v1/namespaces/default/pods?labelSelector=job-name%3Dtrain"))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


async def until_all_bound(kubectl: Kubectl, count: int) -> list[Json]:
    found: list[Json] = []
    for _ in range(int(PATIENCE_S / 0.1)):
        found = [pod for pod in await members(kubectl) if pod["spec"].get("nodeName")]
        if len(found) == count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(found)} of {count} pods have a node")


def test_a_gang_gets_the_place_of_its_deleted_pod_back_while_smaller_work_waits(
    controlled_plane: Plane, tmp_path: Path
) -> None:
    async def test() -> None:
        policy = tmp_path / "policy.yaml"
        policy.write_text(POLICY)
        async with client_for(controlled_plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            for number in range(PODS):
                await kubectl.node(f"node-{number}", gpus=GPUS)
            options = SchedulerOptions(
                str(tmp_path / "home"),
                port=0,
                policy=str(policy),
                kubeconfig=str(controlled_plane.kubeconfig),
                leader_elect=False,
            )
            async with scheduling(options):
                await kubectl.create("/apis/batch/v1/namespaces/default/jobs", job("train", PODS, GPUS))
                before = await until_all_bound(kubectl, PODS)
                for pod in before:
                    await kubectl.phase(pod["metadata"]["name"], "Running")
                small = [f"small-{number}" for number in range(8)]
                for name in small:
                    await kubectl.pod(name)
                for name in small:
                    while not await kubectl.condition(name):  # each was tried, and waits
                        await asyncio.sleep(0.05)
                lost = before[5]
                await kubectl.delete(pod_path(lost["metadata"]["name"]))
                for _ in range(int(PATIENCE_S / 0.1)):  # the controller takes about 10 s
                    now = await members(kubectl)
                    fresh = [pod for pod in now if pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in before}]
                    if fresh and fresh[0]["spec"].get("nodeName"):
                        break
                    await asyncio.sleep(0.1)
                assert [pod["spec"].get("nodeName") for pod in fresh] == [lost["spec"]["nodeName"]]
                await asyncio.sleep(4)  # longer than a stale gang may run
                assert len(await until_all_bound(kubectl, PODS)) == PODS
                assert not [name for name in small if "nodeName" in (await kubectl.read_pod(name))["spec"]]
            await kubectl.clean()

    run(test())
