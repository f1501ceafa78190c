"""Moves on a real API server, with the real controllers and virtual kubelets: the replacement gets the place."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER
from kaiwo.clusters.kubernetes.cache.nomination_annotations import NOMINATION_ANNOTATION
from kaiwo.model.defragmentation import DefragmentationGoal, GoalKind, KeptReason
from kaiwo.runtime.defragmentation.defragmentation import Defragmentation, RunStatus
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.controlplane.plane import MissingError, Plane, find_programs, running_plane
from tests.controlplane.virtual import make_nodes, start_kubelets
from tests.waiting import PATIENCE_S, run

CONTROLLERS = (
    "deployment-controller,replicaset-controller,job-controller,disruption-controller,garbage-collector-controller"
)
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAP = f"/api/v1/namespaces/default/configmaps/{SCHEDULER}-moves"

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def moving_plane(tmp_path: Path) -> Iterator[Plane]:
    try:
        find_programs("kwok")
    except MissingError as error:
        pytest.skip(str(error))
    with running_plane(tmp_path / "plane") as plane:
        plane.start_controllers(f"--controllers={CONTROLLERS}")
        start_kubelets(plane)
        yield plane


def template(name: str, gpus: int) -> Json:
    amounts = {"cpu": "1", "memory": "1Gi", "amd.com/gpu": str(gpus)}
    container = {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {"kaiwo.ai/simulate": "1h"}
    return {
        "metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {"schedulerName": SCHEDULER, "containers": [container]},
    }


def deployment(name: str, gpus: int) -> Json:
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": 1, "selector": selector, "template": template(name, gpus)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def budget(name: str) -> Json:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def bare(name: str, gpus: int) -> Json:
    pod = template(name, gpus)
    pod["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **pod}


async def until_answer(ask: Callable[[], Any], is_good: Callable[[Any], bool], what: str) -> Any:
    found = None
    for _ in range(int(PATIENCE_S / 0.1)):
        found = await ask()
        if is_good(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what}: {found}")


class MovingWorld:
    def __init__(self, kubectl: Kubectl, scheduler: RunningScheduler) -> None:
        self.kubectl, self.scheduler = kubectl, scheduler
        self.service = Defragmentation(scheduler.loop)

    async def pods(self, app: str) -> list[Json]:
        found = (await self.kubectl.get(f"{PODS}?labelSelector=app%3D{app}"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def until_running(self, app: str) -> Json:
        def is_up(pods: list[Json]) -> bool:
            return len(pods) == 1 and pods[0]["status"].get("phase") == "Running"

        return (await until_answer(lambda: self.pods(app), is_up, f"{app} runs"))[0]  # type: ignore[no-any-return]

    async def deploy(self, name: str, gpus: int) -> Json:
        await self.kubectl.create("/apis/apps/v1/namespaces/default/deployments", deployment(name, gpus))
        return await self.until_running(name)

    async def until_over(self) -> RunStatus:
        async def ask() -> RunStatus | None:
            return self.service.status()

        found = await until_answer(ask, lambda status: status is not None and status.run.is_over, "the run is over")
        assert isinstance(found, RunStatus)
        return found

    async def until_known(self, name: str) -> None:
        async def ask() -> bool:
            state = self.scheduler.loop.state
            return name in state.workloads and state.backlog.is_queued(name)

        await until_answer(ask, bool, f"{name} waits")


@asynccontextmanager
async def moving_world(plane: Plane, home: Path, nodes: int) -> AsyncIterator[MovingWorld]:
    policy = home.with_name(home.name + "-policy.yaml")
    policy.write_text("placement: spread\n")
    async with client_for(plane.kubeconfig) as client:
        await make_nodes(client, nodes)
        options = SchedulerOptions(
            str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False, policy=str(policy)
        )
        async with scheduling(options) as scheduler:
            yield MovingWorld(Kubectl(client), scheduler)


def test_a_pod_is_evicted_and_the_one_that_replaces_it_gets_the_place(moving_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with moving_world(moving_plane, tmp_path / "home", 3) as world:
            kubectl = world.kubectl
            free = await world.deploy("free", 3)
            guarded = await world.deploy("guarded", 3)
            await kubectl.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget("guarded"))
            await kubectl.create(PODS, bare("bare", 3))
            alone = await world.until_running("bare")
            assert len({pod["spec"]["nodeName"] for pod in (free, guarded, alone)}) == 3
            await kubectl.create("/apis/apps/v1/namespaces/default/deployments", deployment("large", 8))
            (large,) = await until_answer(lambda: world.pods("large"), bool, "there is a large pod")
            name = f"default/{large['metadata']['name']}"
            await world.until_known(name)

            async def kept() -> dict[str, KeptReason]:
                found = await world.service.plan(DefragmentationGoal(GoalKind.WORKLOAD, name))
                return {each.workload: each.reason for each in found.plan.kept}

            expected = {
                f"default/{guarded['metadata']['name']}": KeptReason.DISRUPTION_BUDGET,
                "default/bare": KeptReason.NOT_REPLACED,
            }
            await until_answer(kept, lambda found: found == expected, "the budget is known")
            plan = await world.service.plan(DefragmentationGoal(GoalKind.WORKLOAD, name))
            (move,) = plan.plan.steps[0].moves
            assert move.workload == f"default/{free['metadata']['name']}"
            await world.service.start(plan, "ann")
            status = await world.until_over()
            moved = await world.until_running("free")
            assert moved["metadata"]["name"] != free["metadata"]["name"]
            assert moved["spec"]["nodeName"] == move.node
            assert (await world.until_running("large"))["spec"]["nodeName"] == move.source
            assert [each.state for step in status.progress for each in step.moves] == ["moved"]
            for before in (guarded, alone):
                now = await kubectl.get(f"{PODS}/{before['metadata']['name']}")
                assert now["metadata"]["uid"] == before["metadata"]["uid"]
            stored = msgspec.json.decode((await kubectl.get(CONFIG_MAP))["data"]["run"])
            assert stored["run"]["state"] == "done"
            waiting = [pod for pod in (await kubectl.get(PODS))["items"] if not pod["spec"].get("nodeName")]
            assert not [pod for pod in waiting if NOMINATION_ANNOTATION in pod["metadata"].get("annotations", {})]

    run(test())


def test_the_next_leader_knows_the_run_and_begins_nothing_twice(moving_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with moving_world(moving_plane, tmp_path / "first", 2) as world:
            await world.deploy("one", 3)
            other = await world.deploy("two", 3)
            await world.kubectl.create("/apis/apps/v1/namespaces/default/deployments", deployment("large", 8))
            (large,) = await until_answer(lambda: world.pods("large"), bool, "there is a large pod")
            name = f"default/{large['metadata']['name']}"
            await world.until_known(name)
            plan = await world.service.plan(DefragmentationGoal(GoalKind.WORKLOAD, name))
            run_of_plan = await world.service.start(plan, "ann")
        async with moving_world_again(moving_plane, tmp_path / "second") as world:
            status = await world.until_over()
            assert status.run.name == run_of_plan.name
            await world.until_running("large")
            await world.until_running("one")
            now = await world.until_running("two")
            pods = (await world.kubectl.get(PODS))["items"]
            assert len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == 3
            replaced = sum(each.state in ("moved", "ended") for step in status.progress for each in step.moves)
            assert replaced == 1
            assert other["metadata"]["name"]
            assert now["spec"]["nodeName"]

    run(test())


@asynccontextmanager
async def moving_world_again(plane: Plane, home: Path) -> AsyncIterator[MovingWorld]:
    async with client_for(plane.kubeconfig) as client:
        options = SchedulerOptions(str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False)
        async with scheduling(options) as scheduler:
            yield MovingWorld(Kubectl(client), scheduler)
