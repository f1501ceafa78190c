"""A new leader keeps the place of a lost gang member: on a real API server, with the real Job controller."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.lost_place_annotations import LOST_PLACES_ANNOTATION
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.replicas import Replica, replica
from tests.clusters.kubernetes.test_gangs_survive import controlled_plane, job, members, until_all_bound
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

__all__ = ["controlled_plane"]  # a fixture
PODS, GPUS = 3, 8
GANG, JOBS = "default/train", "/apis/batch/v1/namespaces/default/jobs"

pytestmark = [pytest.mark.real, pytest.mark.slow]


def write_policy(folder: Path, keep: str) -> str:
    path = folder / "policy.yaml"
    path.write_text(f"staleGangGrace: 3s\nkeepLostPlace: {keep}\n")
    return str(path)


@asynccontextmanager
async def full_gang(plane: Plane, folder: Path, keep: str) -> AsyncIterator[tuple[Kubectl, list[Json], Replica]]:
    """Its pods run on all the nodes, and eight smaller pods of equal priority wait."""
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        for number in range(PODS):
            await kubectl.node(f"node-{number}", gpus=GPUS)
        policy = write_policy(folder, keep)
        with replica(plane, folder / "first", "--no-leader-elect", "--policy", policy) as leader:
            await kubectl.create(JOBS, job("train", PODS, GPUS))
            found = await until_all_bound(kubectl, PODS)
            for pod in found:
                await kubectl.phase(pod["metadata"]["name"], "Running")
            for number in range(8):
                await kubectl.pod(f"small-{number}")
            for number in range(8):
                while not await kubectl.condition(f"small-{number}"):  # each was tried, and waits
                    await asyncio.sleep(0.05)
            yield kubectl, found, leader
        await kubectl.clean()
        # The garbage collector, which does not run here, would do this.
        await kubectl.patch(f"{JOBS}/train", {"metadata": {"finalizers": None}})


@asynccontextmanager
async def next_leader(plane: Plane, folder: Path) -> AsyncIterator[RunningScheduler]:
    """Another home: whatever it knows, it has from the cluster."""
    (folder / "second").mkdir()
    options = SchedulerOptions(
        str(folder / "second"), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False,
        policy=str(folder / "policy.yaml"),
    )  # fmt: skip
    async with scheduling(options) as kaiwo:
        yield kaiwo


async def delete_for_good(kubectl: Kubectl, pod: Json) -> None:
    """The Job controller, which stands still, would take its finalizer off."""
    path = pod_path(pod["metadata"]["name"])
    await kubectl.delete(path)
    await kubectl.patch(path, {"metadata": {"finalizers": None}})


async def carriers(kubectl: Kubectl) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in await members(kubectl)
        if LOST_PLACES_ANNOTATION in pod["metadata"].get("annotations", {})
    ]


async def until(holds: Callable[[], Awaitable[object]], what: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < until_s, f"waited for {what}"
        await asyncio.sleep(0.05)


async def bound_smalls(kubectl: Kubectl) -> list[str]:
    found = (await kubectl.get("/api/v1/namespaces/default/pods"))["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if pod["metadata"]["name"].startswith("small") and pod["spec"].get("nodeName")
    ]


def test_the_next_leader_keeps_the_place_and_the_replacement_starts_there(
    controlled_plane: Plane, tmp_path: Path
) -> None:
    plane = controlled_plane

    async def test() -> None:
        async with full_gang(plane, tmp_path, "5m") as (kubectl, before, leader):
            plane.kill("kube-controller-manager", signal.SIGSTOP)  # the replacement comes when we want it
            try:
                lost, survivors = before[1], [before[0], before[2]]
                await delete_for_good(kubectl, lost)
                deleted_s = time.time()
                await until(lambda: carriers(kubectl), "the place to be written")
                leader.signal(signal.SIGKILL)
                await asyncio.sleep(2)
                async with next_leader(plane, tmp_path) as kaiwo:
                    [place] = kaiwo.loop.state.nominations[GANG].values()
                    assert place.node == lost["spec"]["nodeName"]
                    assert len(place.devices) == GPUS
                    assert abs(place.lost_s - deleted_s) < 2  # from the loss, not from the take-over
                    await kubectl.pod("later", gpus=0)
                    await until(lambda: is_bound(kubectl, "later"), "a cycle")
                    assert await bound_smalls(kubectl) == []
                    plane.kill("kube-controller-manager", signal.SIGCONT)
                    after = await until_all_bound(kubectl, PODS)
                    known = {pod["metadata"]["uid"] for pod in before}
                    [fresh] = [pod for pod in after if pod["metadata"]["uid"] not in known]
                    assert fresh["spec"]["nodeName"] == lost["spec"]["nodeName"]
                    await kubectl.phase(fresh["metadata"]["name"], "Running")
                    await until(lambda: nothing_is_kept(kubectl), "the annotation to go")
                    await asyncio.sleep(4)  # longer than a stale gang may run
                    now = {pod["metadata"]["uid"] for pod in await members(kubectl)}
                    assert {pod["metadata"]["uid"] for pod in survivors} < now
                    assert await bound_smalls(kubectl) == []
                    assert kaiwo.loop.health.failures == 0
            finally:
                plane.kill("kube-controller-manager", signal.SIGCONT)

    run(test())


def test_the_next_leader_gives_the_place_up_when_the_time_since_the_loss_is_over(
    controlled_plane: Plane, tmp_path: Path
) -> None:
    plane, keep_s = controlled_plane, 12

    async def test() -> None:
        async with full_gang(plane, tmp_path, f"{keep_s}s") as (kubectl, before, leader):
            plane.kill("kube-controller-manager", signal.SIGSTOP)
            try:
                await delete_for_good(kubectl, before[1])
                deleted_s = time.time()
                await until(lambda: carriers(kubectl), "the place to be written")
                leader.signal(signal.SIGKILL)
                await asyncio.sleep(4)
                async with next_leader(plane, tmp_path):
                    await until(lambda: bound_smalls(kubectl), "others to get the place")
                    given_s = time.time() - deleted_s
                    assert keep_s - 1 <= given_s < keep_s + 4, f"after {given_s:.1f} s"
                    await until(lambda: nothing_is_kept(kubectl), "the annotation to go")
            finally:
                plane.kill("kube-controller-manager", signal.SIGCONT)

    run(test())


async def nothing_is_kept(kubectl: Kubectl) -> bool:
    return not await carriers(kubectl)


async def is_bound(kubectl: Kubectl, name: str) -> bool:
    return bool((await kubectl.read_pod(name))["spec"].get("nodeName"))
