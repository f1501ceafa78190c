"""Disruption budgets: whoever is covered stays, and somebody else goes; on the real API server, and by the numbers."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from kaiwo.clusters.kubernetes.budgets import BudgetObject, read_budget
from kaiwo.decide.victims import Roster
from kaiwo.model.event import NodeChanged, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.queue import THE_DEFAULT
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload
from kaiwo.snapshot.picture import Picture
from tests.controlplane.plane import Plane
from tests.kubernetes.making import seen_pod, some_books
from tests.kubernetes.scene import Json, Kubectl, opened
from tests.kubernetes.speaking import PATIENCE_S, run
from tests.kubernetes.stage import scheduled, until_bound

AT_ONCE = {"terminationGracePeriodSeconds": 0}  # nobody plays the kubelet here
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def test_a_budget_keeps_its_pods_and_another_goes(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.node("node-1")
            await kubectl.node("node-2")
            await kubectl.pod("free", gpus=8, **AT_ONCE)
            await until_bound(kubectl, "free")
            # The younger of two equals would go first.
            await kubectl.pod("guarded", gpus=8, labels={"app": "guarded"}, **AT_ONCE)
            await until_bound(kubectl, "guarded")
            await kubectl.create(BUDGETS, budget("guarded"))
            await allow(kubectl, "guarded", 0)
            for name in ("free", "guarded"):
                await kubectl.phase(name, "Running")
            await kubectl.pod("high", gpus=8, annotations={"kaiwo.ai/priority": "900"}, **AT_ONCE)
            await until_bound(kubectl, "high")
            assert await names(kubectl) == {"guarded", "high"}
            await kubectl.phase("high", "Running")
            await kubectl.pod("higher", gpus=8, annotations={"kaiwo.ai/priority": "901"}, **AT_ONCE)
            await until_bound(kubectl, "higher")  # of "guarded" and "high" only the second may go
            assert await names(kubectl) == {"guarded", "higher"}
            await kubectl.phase("higher", "Running")
            await kubectl.pod("last", gpus=8, annotations={"kaiwo.ai/priority": "800"})
            await allow(kubectl, "guarded", 1)
            await until_bound(kubectl, "last")
            assert await names(kubectl) == {"higher", "last"}

    run(test())


@pytest.mark.parametrize(
    ("may_go", "units"),
    [(-1, [1, 1, 2]), (4, [1, 1, 2]), (3, [1, 1]), (1, [1]), (0, [])],
)
def test_no_more_pods_go_than_a_budget_allows(may_go: int, units: list[int]) -> None:
    """Two pods of four are surplus: they go one by one, and the rest only together."""
    picture = Picture()
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 1000) for number in range(4))
    workload = Workload("default/w", (Role(Request(gpus=1), count=4, minimum=2),), may_go=may_go)
    pods = [Pod("default/w", f"main-{n}", "node", devices=(Share(f"gpu-{n}", 1000, 1000),)) for n in range(4)]
    node = Node("node", cpu_milli=1000, memory_mib=1000, gpus=gpus)
    picture.patch([NodeChanged(node), QueueChanged(THE_DEFAULT), WorkloadChanged(workload), *map(PodChanged, pods)])
    picture.tidy()
    roster = Roster(picture, 0, "priority")
    assert [len(unit.pods) for unit in roster.units("default")] == units


def test_the_tightest_budget_counts() -> None:
    books = some_books()
    books.put_pod(seen_pod("p", node="node-1", phase="Running", labels={"app": "a", "tier": "x"}))
    books.settle()
    for name, selector, allowed in (("wide", {}, 5), ("tight", {"matchLabels": {"app": "a"}}, 2), ("other", None, 0)):
        item = msgspec.convert(budget(name, selector) | {"status": {"disruptionsAllowed": allowed}}, BudgetObject)
        books.touch(books.budgets.put(read_budget(item), books.pods.values()))
    books.settle()
    assert books.told.workloads["default/p"].may_go == 2
    for name in ("tight", "wide"):
        gone = read_budget(msgspec.convert(budget(name, {}), BudgetObject))
        books.touch(books.budgets.drop(gone, books.pods.values()))
    books.settle()
    assert books.told.workloads["default/p"].may_go == -1


def budget(name: str, selector: Json | None = None) -> Json:
    wanted = {"matchLabels": {"app": name}} if selector is None else selector
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": wanted},
    }


async def allow(kubectl: Kubectl, name: str, count: int) -> None:
    """What the cluster's controller would work out."""
    status = {"disruptionsAllowed": count, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status["observedGeneration"] = (await kubectl.get(f"{BUDGETS}/{name}"))["metadata"]["generation"]
    await kubectl.patch(f"{BUDGETS}/{name}/status", {"status": status})


async def names(kubectl: Kubectl) -> set[str]:
    """When nobody is leaving any more."""
    for _ in range(int(PATIENCE_S / 0.05)):
        pods = (await kubectl.get("/api/v1/pods"))["items"]
        if not any("deletionTimestamp" in pod["metadata"] for pod in pods):
            return {pod["metadata"]["name"] for pod in pods}
        await asyncio.sleep(0.05)
    raise AssertionError("pods stay though they were told to go")


def test_a_pod_has_the_priority_of_its_class(plane: Plane) -> None:
    """The API server resolves it, also that of the class that everybody gets."""

    async def test() -> None:
        async with opened(plane) as scene:
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            for name, value in (("t-named", 700), ("t-everybody", 7)):
                await scene.kubectl.create(
                    path, {"metadata": {"name": name}, "value": value, "globalDefault": value == 7}
                )
            try:
                await scene.kubectl.pod("named", priorityClassName="t-named")
                await scene.kubectl.pod("any")
                await scene.until_waiting("named", "any")
                assert [scene.workload(name).priority for name in ("named", "any")] == [700, 7]
            finally:
                for name in ("t-named", "t-everybody"):
                    await scene.kubectl.delete(f"{path}/{name}")

    run(test())
