"""A leaf fails on a real API server, with the real controllers and virtual kubelets: its gangs run again elsewhere."""

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER
from kaiwo.clusters.kubernetes.cache.node_cache import FAILURE_ANNOTATION, OUT_OF_SERVICE
from kaiwo.clusters.kubernetes.watch.node_leases import LEASES
from kaiwo.model.recovery import RecoveryWay
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.controlplane.plane import HERE, MissingError, Plane, find_programs, running_plane
from tests.controlplane.virtual import LEASE_S, NODES_A_LEAF, make_nodes
from tests.waiting import PATIENCE_S, run

LEAF = "topology.kaiwo.ai/leaf"
OFF = "powered-off"  # a label: the kubelet of such a node is not there
LEAVES = 3
RENEWAL_S = LEASE_S / 4
TARGET_S = 30.0  # from the first renewal that is missed
CONTROLLERS = "job-controller,node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller"

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def leaf_plane(tmp_path: Path) -> Iterator[Plane]:
    """A control plane in which the kubelets of each leaf are a program of their own."""
    try:
        find_programs("kwok")
    except MissingError as error:
        pytest.skip(str(error))
    with running_plane(tmp_path / "plane") as plane:
        plane.start_controllers(f"--controllers={CONTROLLERS}")
        for leaf in range(1, LEAVES + 1):
            plane.run(
                f"kwok-{leaf}", f"--kubeconfig={plane.kubeconfig}", f"--config={HERE / 'stages.yaml'}",
                "--manage-all-nodes=false", f"--manage-nodes-with-label-selector={LEAF}=leaf-{leaf},!{OFF}",
                f"--node-lease-duration-seconds={LEASE_S}", program=plane.programs / "kwok",
            )  # fmt: skip
        yield plane


def job(name: str, pods: int, gpus: int) -> Json:
    amounts = {"cpu": "1", "memory": "1Gi", "amd.com/gpu": str(gpus)}
    container = {"name": "main", "image": "work", "resources": {"requests": amounts, "limits": amounts}}
    annotations = {"kaiwo.ai/required-level": LEAF, "kaiwo.ai/simulate": "1h"}
    template: Json = {
        "metadata": {"annotations": annotations},
        "spec": {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container]},
    }
    # With one count of failures for all pods, the Job controller waits for 40 s when three are lost at once.
    spec = {
        "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimitPerIndex": 3,
        "template": template,
    }  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


class LeafWorld:
    def __init__(self, kubectl: Kubectl, scheduler: RunningScheduler) -> None:
        self.kubectl, self.scheduler = kubectl, scheduler

    async def submit(self, name: str, pods: int, gpus: int = 8) -> None:
        await self.kubectl.create("/apis/batch/v1/namespaces/default/jobs", job(name, pods, gpus))
        await self.until_running(name, pods)

    async def pods(self, name: str) -> list[Json]:
        found = (await self.kubectl.get(f"/api/v1/namespaces/default/pods?labelSelector=job-name%3D{name}"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def until_running(self, name: str, count: int, not_on: frozenset[str] = frozenset()) -> list[Json]:
        found: list[Json] = []
        for _ in range(int(PATIENCE_S / 0.1)):
            found = [pod for pod in await self.pods(name) if pod["status"].get("phase") == "Running"]
            if len(found) == count and not any(pod["spec"]["nodeName"] in not_on for pod in found):
                return found
            await asyncio.sleep(0.1)
        where = [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"]) for pod in await self.pods(name)]
        raise AssertionError(f"{len(found)} of {count} pods of {name} run: {where}")

    async def leaves(self, name: str) -> set[int]:
        return {leaf_of(pod["spec"]["nodeName"]) for pod in await self.pods(name)}

    async def fence(self, nodes: frozenset[str]) -> None:
        """What a fencing agent does: it cuts the power of a node that the scheduler reports as failed."""
        fenced: set[str] = set()
        while fenced != nodes:
            for name in (nodes & self.scheduler.loop.state.failures.nodes) - fenced:
                taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
                node = await self.kubectl.get(f"/api/v1/nodes/{name}")
                taints = [*node["spec"].get("taints", []), taint]
                await self.kubectl.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
                fenced.add(name)
            await asyncio.sleep(0.1)

    async def first_missed_renewal(self, nodes: frozenset[str]) -> float:
        leases = (await self.kubectl.get(LEASES))["items"]
        renewed = [each["spec"]["renewTime"] for each in leases if each["metadata"]["name"] in nodes]
        return min(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() for text in renewed) + RENEWAL_S


def leaf_of(node: str) -> int:
    return (int(node.removeprefix("node-")) - 1) // NODES_A_LEAF + 1


def nodes_of_leaf(leaf: int) -> frozenset[str]:
    return frozenset(f"node-{(leaf - 1) * NODES_A_LEAF + at}" for at in range(1, NODES_A_LEAF + 1))


def test_the_gangs_of_a_failed_leaf_run_again_in_another_one_in_time(leaf_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with client_for(leaf_plane.kubeconfig) as client:
            await make_nodes(client, LEAVES * NODES_A_LEAF)
            options = SchedulerOptions(
                str(tmp_path / "home"), port=0, kubeconfig=str(leaf_plane.kubeconfig), leader_elect=False
            )
            async with scheduling(options) as scheduler:
                world = LeafWorld(Kubectl(client), scheduler)
                await world.submit("big", 3)
                await world.submit("small", 2, gpus=4)
                await world.submit("other", 3)
                [leaf] = await world.leaves("big")
                assert await world.leaves("small") == {leaf}
                assert leaf not in await world.leaves("other")
                others = {pod["metadata"]["uid"] for pod in await world.pods("other")}
                nodes = nodes_of_leaf(leaf)

                leaf_plane.kill(f"kwok-{leaf}")
                missed_s = await world.first_missed_renewal(nodes)
                fencing = asyncio.create_task(world.fence(nodes))
                while not scheduler.loop.state.failures.nodes:
                    await asyncio.sleep(0.05)
                known_s = time.time() - missed_s
                for name, count in (("big", 3), ("small", 2)):
                    await world.until_running(name, count, not_on=nodes)
                took_s = time.time() - missed_s
                await fencing

                for name in ("big", "small"):
                    assert len(await world.leaves(name)) == 1
                    assert leaf not in await world.leaves(name)
                assert {pod["metadata"]["uid"] for pod in await world.pods("other")} == others
                print(f"\nknown {known_s:.1f} s and running again {took_s:.1f} s after the first missed renewal")
                assert took_s < TARGET_S

    run(test())


def test_a_pod_that_may_still_run_is_not_replaced(leaf_plane: Plane, tmp_path: Path) -> None:
    """Its node does not answer, and nobody has fenced it: two copies must never run."""

    async def test() -> None:
        async with client_for(leaf_plane.kubeconfig) as client:
            await make_nodes(client, LEAVES * NODES_A_LEAF)
            options = SchedulerOptions(
                str(tmp_path / "home"), port=0, kubeconfig=str(leaf_plane.kubeconfig), leader_elect=False
            )
            async with scheduling(options) as scheduler:
                world = LeafWorld(Kubectl(client), scheduler)
                await world.submit("train", 2)
                before = {pod["metadata"]["uid"] for pod in await world.pods("train")}
                [leaf] = await world.leaves("train")
                leaf_plane.kill(f"kwok-{leaf}")
                state = scheduler.loop.state
                while not state.failures.recoveries:
                    await asyncio.sleep(0.05)
                assert state.failures.recoveries["default/train"].way is RecoveryWay.FENCE
                await asyncio.sleep(3)  # nothing happens: only time can show that
                assert {pod["metadata"]["uid"] for pod in await world.pods("train")} == before

                # A node that is deleted is gone for certain.
                nodes = nodes_of_leaf(leaf)
                for name in nodes:
                    await world.kubectl.delete(f"/api/v1/nodes/{name}")
                after = await world.until_running("train", 2, not_on=nodes)
                assert not {pod["metadata"]["uid"] for pod in after} & before
                assert len(await world.leaves("train")) == 1
                while state.failures.recoveries:
                    await asyncio.sleep(0.05)

    run(test())


def test_the_next_leader_remembers_which_node_failed_whom(leaf_plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with client_for(leaf_plane.kubeconfig) as client:
            await make_nodes(client, LEAVES * NODES_A_LEAF)
            options = SchedulerOptions(
                str(tmp_path / "home"), port=0, kubeconfig=str(leaf_plane.kubeconfig), leader_elect=False
            )
            async with scheduling(options) as scheduler:
                world = LeafWorld(Kubectl(client), scheduler)
                await world.submit("train", 2)
                lost = (await world.pods("train"))[0]["spec"]["nodeName"]
                kept = {pod["metadata"]["uid"] for pod in await world.pods("train") if pod["spec"]["nodeName"] != lost}
                taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
                condition = {"type": "Ready", "status": "False", "reason": "off", "message": "it is off"}
                off = {"metadata": {"labels": {OFF: "true"}}, "spec": {"taints": [taint]}}
                await world.kubectl.patch(f"/api/v1/nodes/{lost}", off)
                await world.kubectl.patch(f"/api/v1/nodes/{lost}/status", {"status": {"conditions": [condition]}})
                await world.until_running("train", 2, not_on=frozenset((lost,)))
                note = ""
                while "train" not in note:
                    node = await world.kubectl.get(f"/api/v1/nodes/{lost}")
                    note = node["metadata"].get("annotations", {}).get(FAILURE_ANNOTATION, "")
                    await asyncio.sleep(0.1)
                pods = await world.pods("train")
                assert len({leaf_of(pod["spec"]["nodeName"]) for pod in pods}) == 1
                assert kept < {pod["metadata"]["uid"] for pod in pods}, "the pod on the node that works stays"
            async with scheduling(options) as scheduler:
                assert scheduler.loop.state.failures.bad_nodes_of("default/train") == (lost,)

    run(test())
