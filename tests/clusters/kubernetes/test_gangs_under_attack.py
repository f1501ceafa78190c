"""A full cluster, a running gang of a real Job, and everything that goes wrong with its pods at the worst moment.

Smaller work waits for every place that becomes free. The scheduler has no admission policies and no webhooks.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.test_gangs_survive import controlled_plane, job, members, until_all_bound
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

PODS, GPUS, SMALL, GRACE_S = 4, 8, 6, 3
JOBS = "/apis/batch/v1/namespaces/default/jobs"
pytestmark = [pytest.mark.real, pytest.mark.slow]
__all__ = ["controlled_plane"]  # the fixture


class Full(NamedTuple):
    kubectl: Kubectl
    before: list[Json]  # the pods of the gang
    small: list[str]

    async def bound_small(self) -> list[str]:
        return [name for name in self.small if "nodeName" in (await self.kubectl.read_pod(name))["spec"]]

    async def until_whole_again(self, lost: list[Json]) -> None:
        """The gang has all its pods, the new ones where the lost ones were, and nobody else began meanwhile."""
        known = {pod["metadata"]["uid"] for pod in self.before}
        expected = sorted(pod["spec"]["nodeName"] for pod in lost)
        places: list[str] = []
        for _ in range(int(PATIENCE_S / 0.1)):
            now = await members(self.kubectl)
            fresh = [pod for pod in now if pod["metadata"]["uid"] not in known]
            places = sorted(pod["spec"].get("nodeName", "") for pod in fresh)
            assert not await self.bound_small(), "smaller work took the place"
            if places == expected:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"replacements are on {places}, the lost pods were on {expected}")


async def end_job(kubectl: Kubectl) -> None:
    await kubectl.delete(f"{JOBS}/train?propagationPolicy=Background", grace_s=None)
    async with asyncio.timeout(PATIENCE_S):
        while (await kubectl.get(JOBS))["items"]:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def full_cluster(plane: Plane, home: Path, **changes: Any) -> AsyncIterator[Full]:
    home.mkdir(exist_ok=True)
    policy = home / "policy.yaml"
    policy.write_text(f"staleGangGrace: {GRACE_S}s")
    async with client_for(plane.kubeconfig) as client:
        kubectl = Kubectl(client)
        await kubectl.clean()
        for number in range(PODS):
            await kubectl.node(f"node-{number}", gpus=GPUS)
        options = SchedulerOptions(
            str(home / "home"), port=0, policy=str(policy), kubeconfig=str(plane.kubeconfig), leader_elect=False
        )
        async with scheduling(options):
            document = job("train", PODS, GPUS)
            document["spec"] |= changes
            await kubectl.create(JOBS, document)
            before = await until_all_bound(kubectl, PODS)
            for pod in before:
                await kubectl.phase(pod["metadata"]["name"], "Running")
            small = [f"small-{number}" for number in range(SMALL)]
            for name in small:
                await kubectl.pod(name)
            for name in small:
                while not await kubectl.condition(name):  # each was tried, and waits
                    await asyncio.sleep(0.05)
            try:
                yield Full(kubectl, before, small)
            finally:
                await end_job(kubectl)
        await kubectl.clean()


def test_two_pods_that_go_at_once_get_their_two_places_back(controlled_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            lost = world.before[1:3]
            for pod in lost:
                await world.kubectl.delete(pod_path(pod["metadata"]["name"]))
            await world.until_whole_again(lost)

    run(test())


def test_a_pod_that_fails_is_replaced_in_its_place(controlled_plane: Plane, tmp_path: Path) -> None:
    """The Job controller waits ten seconds after a failure, and the pod that failed is still there."""

    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            lost = world.before[2]
            await world.kubectl.phase(lost["metadata"]["name"], "Failed")
            await world.until_whole_again([lost])

    run(test())


def test_a_pod_that_an_administrator_evicts_is_replaced_in_its_place(controlled_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            lost = world.before[0]
            name = lost["metadata"]["name"]
            await world.kubectl.create(
                f"{pod_path(name)}/eviction",
                {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                 "deleteOptions": {"gracePeriodSeconds": 0}},
            )  # fmt: skip
            await world.until_whole_again([lost])

    run(test())


def test_a_replacement_that_is_lost_too_is_replaced_again(controlled_plane: Plane, tmp_path: Path) -> None:
    """Whoever deletes each replacement as soon as it appears loses nothing but time."""

    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            kubectl, lost = world.kubectl, world.before[3]
            await kubectl.delete(pod_path(lost["metadata"]["name"]))
            known = {pod["metadata"]["uid"] for pod in world.before}
            async with asyncio.timeout(PATIENCE_S):
                while not (
                    fresh := [pod for pod in await members(world.kubectl) if pod["metadata"]["uid"] not in known]
                ):
                    await asyncio.sleep(0.02)
            await world.kubectl.delete(pod_path(fresh[0]["metadata"]["name"]))
            world.before.append(fresh[0])
            await world.until_whole_again([lost])

    run(test())


def test_a_lost_pod_that_somebody_holds_back_is_replaced_in_its_place_once_it_is_gone(
    controlled_plane: Plane, tmp_path: Path
) -> None:
    """A finalizer keeps it for longer than the grace of stale gangs. Its Job makes another one at once, which waits."""

    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            kubectl, lost = world.kubectl, world.before[1]
            path, known = pod_path(lost["metadata"]["name"]), {pod["metadata"]["uid"] for pod in world.before}
            held = [*lost["metadata"].get("finalizers", []), "example.com/held"]
            await kubectl.patch(path, {"metadata": {"finalizers": held}})
            await kubectl.delete(path)
            for _ in range(2 * GRACE_S):
                await asyncio.sleep(1)
                assert not await world.bound_small(), "smaller work took the place"
            now = await members(kubectl)
            assert len([pod for pod in now if pod["metadata"]["uid"] in known]) == PODS - 1, "the others stay"
            await kubectl.patch(path, {"metadata": {"finalizers": None}})
            await world.until_whole_again([lost])

    run(test())


@pytest.mark.parametrize("end", ["suspended", "deleted", "smaller"])
def test_a_place_that_nobody_will_use_is_free_at_once(controlled_plane: Plane, tmp_path: Path, end: str) -> None:
    """Nobody keeps GPUs from others with a Job that makes no more pods."""

    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            lost = world.before[1]
            await world.kubectl.delete(pod_path(lost["metadata"]["name"]))
            if end == "deleted":
                await end_job(world.kubectl)
                for pod in await members(world.kubectl):  # there is no garbage collector here
                    await world.kubectl.delete(pod_path(pod["metadata"]["name"]))
            elif end == "suspended":
                await world.kubectl.patch(f"{JOBS}/train", {"spec": {"suspend": True}})
            else:
                await world.kubectl.patch(f"{JOBS}/train", {"spec": {"parallelism": PODS - 1, "completions": PODS - 1}})
            async with asyncio.timeout(30):  # a place is kept for five minutes otherwise
                while len(await world.bound_small()) < SMALL:
                    await asyncio.sleep(0.1)

    run(test())


def test_a_gang_whose_place_is_gone_is_told_before_it_is_stopped(controlled_plane: Plane, tmp_path: Path) -> None:
    """The node of the lost pod goes with it. There is no other place, so the gang cannot be whole again."""

    async def test() -> None:
        async with full_cluster(controlled_plane, tmp_path) as world:
            lost = world.before[1]
            await world.kubectl.delete(f"/api/v1/nodes/{lost['spec']['nodeName']}")
            await world.kubectl.delete(pod_path(lost["metadata"]["name"]))
            said: list[str] = []
            async with asyncio.timeout(PATIENCE_S):
                while not any(each == "GangIncomplete" for each in said):
                    events = (await world.kubectl.get("/api/v1/namespaces/default/events"))["items"]
                    said = [event["reason"] for event in events]
                    await asyncio.sleep(0.1)

    run(test())
