"""Disruption budgets: whoever is covered stays, and somebody else goes; on the real API server, and by the numbers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.disruption_budgets import BudgetObject, DisruptionBudgets, read_budget
from kaiwo.clusters.kubernetes.client import ApiError
from kaiwo.clusters.kubernetes.writers import evictor
from kaiwo.decide.make_room.victim_units import VictimUnits
from kaiwo.model.events import NodeChanged, PodChanged, QueueChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.policy import Policy
from kaiwo.model.queue import UNBOUNDED_DEFAULT_QUEUE
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod, Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, opened, pod_path
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

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
    state = ClusterState()
    gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 1000) for number in range(4))
    workload = Workload("default/w", (Role(Request(gpus=1), count=4, minimum=2),), may_go=may_go)
    pods = [Pod("default/w", f"main-{n}", "node", devices=(Share(f"gpu-{n}", 1000, 1000),)) for n in range(4)]
    node = Node("node", cpu_milli=1000, memory_mib=1000, gpus=gpus)
    state.patch(
        [NodeChanged(node), QueueChanged(UNBOUNDED_DEFAULT_QUEUE), WorkloadChanged(workload), *map(PodChanged, pods)]
    )
    state.refresh_tables()
    roster = VictimUnits(state, 0, Policy(victim_order="youngest"))
    assert [len(unit.pods) for unit in roster.units("default")] == units


def test_a_pod_that_two_budgets_cover_stays_and_more_nodes_help(plane: Plane, tmp_path: Path) -> None:
    """The server evicts no such pod, whatever the budgets allow."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await _low_and_budgets(kubectl)
            await kubectl.pod("high", gpus=8, annotations={"kaiwo.ai/priority": "900"}, **AT_ONCE)
            await until_said(kubectl, "high", "more than one disruption budget covers pod default/low")
            assert (await kubectl.condition("high"))["reason"] == "Unschedulable"
            assert "nominatedNodeName" not in (await kubectl.read_pod("high"))["status"]
            await kubectl.node("node-2")
            bound = await until_bound(kubectl, "high")
            assert bound["spec"]["nodeName"] == "node-2"
            assert await names(kubectl) == {"low", "high"}

    run(test())


def test_an_eviction_that_the_server_never_grants_is_given_up(
    plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The scheduler does not know of the second budget yet; the server says that it is not well, and stays so."""
    monkeypatch.setattr(DisruptionBudgets, "allowed", lambda *_: -1)
    monkeypatch.setattr(DisruptionBudgets, "explain_never", lambda *_: "")
    monkeypatch.setattr(evictor, "FIRST_PAUSE_S", 0.2)

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await _low_and_budgets(kubectl)
            await kubectl.pod("high", gpus=8, annotations={"kaiwo.ai/priority": "900"}, **AT_ONCE)
            await until_said(kubectl, "high", "the server does not evict pod default/low: This pod has more than one")
            assert (await kubectl.condition("high"))["reason"] == "Unschedulable"
            await _until_not_nominated(kubectl, "high")
            await kubectl.node("node-2")
            await until_bound(kubectl, "high")
            assert await names(kubectl) == {"low", "high"}

    run(test())
    told = capfd.readouterr().err
    assert '"event": "evict-failed"' in told
    assert '"pod": "default/low", "beneficiary": "default/high"' in told


def test_what_an_admission_policy_forbids_is_given_up_at_once(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl, _nobody_leaves(kubectl):
            await kubectl.node("node-1")
            await kubectl.pod("low", gpus=8, **AT_ONCE)
            await until_bound(kubectl, "low")
            await kubectl.phase("low", "Running")
            await _until_forbidden(kubectl, "low")
            await kubectl.pod("high", gpus=8, annotations={"kaiwo.ai/priority": "900"}, **AT_ONCE)
            await until_said(kubectl, "high", "nobody leaves today")
            await _until_not_nominated(kubectl, "high")
            await kubectl.node("node-2")
            await until_bound(kubectl, "high")

    run(test())


def test_the_tightest_budget_counts() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("p", node="node-1", phase="Running", labels={"app": "a", "tier": "x"}))
    cache.flush()
    for name, selector, allowed in (("wide", {}, 5), ("tight", {"matchLabels": {"app": "a"}}, 2), ("other", None, 0)):
        item = msgspec.convert(budget(name, selector) | {"status": {"disruptionsAllowed": allowed}}, BudgetObject)
        cache.touch(cache.budgets.upsert(read_budget(item), cache.pods.values()))
    cache.flush()
    workload = cache.published.workloads["default/p"]
    assert (workload.may_go, workload.stays_why) == (
        0,
        "more than one disruption budget covers pod default/p, so the server never evicts it",
    )
    for name, may_go in (("wide", 2), ("tight", -1)):
        cache.retry_evictions(
            cache.budgets.delete(read_budget(msgspec.convert(budget(name, {}), BudgetObject)), cache.pods.values())
        )
        cache.flush()
        workload = cache.published.workloads["default/p"]
        assert (workload.may_go, workload.stays_why) == (may_go, "")


def test_the_tightest_budget_of_a_gang_counts() -> None:
    cache = cache_with_nodes()
    for name in "ab":
        labels, notes = {"app": name}, {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2"}
        cache.upsert_pod(cached_pod(name, node="node-1", phase="Running", labels=labels, annotations=notes))
    for name, allowed in (("a", 5), ("b", 2)):
        item = msgspec.convert(budget(name) | {"status": {"disruptionsAllowed": allowed}}, BudgetObject)
        cache.retry_evictions(cache.budgets.upsert(read_budget(item), cache.pods.values()))
    cache.flush()
    (workload,) = cache.published.workloads.values()
    assert workload.may_go == 2


def test_who_was_refused_for_good_stays_until_its_budgets_change() -> None:
    cache = cache_with_nodes()
    pod = cached_pod("p", node="node-1", phase="Running", labels={"app": "a"})
    cache.upsert_pod(pod)
    cache.flush()
    cache.published.assume_releasing("default/p", "main-0")
    cache.in_flight.begin_eviction(pod)
    cache.flush()
    assert cache.published.pods["default/p"]["main-0"].phase is Phase.RELEASING
    cache.in_flight.end_eviction(pod, "the server does not evict it")
    cache.flush()
    workload = cache.published.workloads["default/p"]
    assert cache.published.pods["default/p"]["main-0"].phase is Phase.RUNNING
    assert (workload.may_go, workload.stays_why) == (0, "the server does not evict it")
    item = msgspec.convert(budget("a") | {"status": {"disruptionsAllowed": 1}}, BudgetObject)
    cache.retry_evictions(cache.budgets.upsert(read_budget(item), cache.pods.values()))
    cache.flush()
    assert cache.published.workloads["default/p"].may_go == 1


def budget(name: str, selector: Json | None = None) -> Json:
    wanted = {"matchLabels": {"app": name}} if selector is None else selector
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": wanted},
    }


async def _low_and_budgets(kubectl: Kubectl) -> None:
    """One full node, and two budgets that each would let its pod go."""
    await kubectl.node("node-1")
    await kubectl.pod("low", gpus=8, labels={"app": "low"}, **AT_ONCE)
    await until_bound(kubectl, "low")
    await kubectl.phase("low", "Running")
    for name in ("one", "two"):
        await kubectl.create(BUDGETS, budget(name, {"matchLabels": {"app": "low"}}))
        await allow(kubectl, name, 1)


@asynccontextmanager
async def _nobody_leaves(kubectl: Kubectl) -> AsyncIterator[None]:
    path, name = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{}/t-nobody-leaves", "t-nobody-leaves"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "nobody leaves today"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for ending, spec in (("ies", policy), ("ybindings", binding)):
        await kubectl.create(path.format(ending).rpartition("/")[0], {"metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        for ending in ("ybindings", "ies"):
            await kubectl.delete(path.format(ending), None)


async def _until_forbidden(kubectl: Kubectl, name: str) -> None:
    """The server takes a moment to keep to a new policy."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    for _ in range(int(PATIENCE_S / 0.05)):
        try:
            await kubectl.create(f"{pod_path(name)}/eviction", body | {"deleteOptions": {"dryRun": ["All"]}})
        except ApiError as error:
            if "nobody leaves today" in str(error):
                return
            raise
        await asyncio.sleep(0.05)
    raise AssertionError("the policy does not hold")


async def _until_not_nominated(kubectl: Kubectl, name: str) -> None:
    for _ in range(int(PATIENCE_S / 0.05)):
        pod = await kubectl.read_pod(name)
        if not pod["status"].get("nominatedNodeName") and "kaiwo.ai/kept-space" not in pod["metadata"]["annotations"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"space stays kept for {name}: {pod['status']}")


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
