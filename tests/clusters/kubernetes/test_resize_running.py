"""Running pods shrink in place on a real API server: as RBAC, the admission policies and the pod's class allow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kaiwo.advise.run_uses import PodAmounts, RunUse
from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.protocol import PodUse
from kaiwo.forecast.expected_starts import run_key_of
from kaiwo.model.errors import RefusedError
from kaiwo.runtime.advising.adjustment_file import AdjustmentKind
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import client_for, until_bound
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run, until

Json = dict[str, Any]
POLICY = "adjustment: {mode: act, afterRuns: 2}\n"


def container(name: str, requests: Json, limits: Json | None = None) -> Json:
    return {"name": name, "image": "work", "resources": {"requests": requests, "limits": limits or {}}}


def options(plane: Plane, home: Path) -> SchedulerOptions:
    (home / "policy.yaml").write_text(POLICY)
    return SchedulerOptions(
        str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False, policy=str(home / "policy.yaml")
    )


async def resources(kubectl: Kubectl, name: str) -> Json:
    found: Json = (await kubectl.read_pod(name))["spec"]["containers"][0]["resources"]
    return found


def test_a_running_pod_shrinks_to_what_its_earlier_runs_used(plane: Plane, tmp_path: Path) -> None:
    """Its limits stay, the scheduler counts less at once, and the history says why."""

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            async with scheduling(options(plane, tmp_path)) as kaiwo:
                await kubectl.node("node-1")
                asked, limits = {"cpu": "8", "memory": "16Gi"}, {"cpu": "16", "memory": "32Gi"}
                await kubectl.pod("train-1", gpus=0, containers=[container("main", asked, limits)])
                before = await until_bound(kubectl, "train-1")
                await kubectl.phase("train-1", "Running")
                adjuster, state = kaiwo.context.adjuster, kaiwo.loop.state
                await until(lambda: "default/train-1" in state.pods)
                given = PodAmounts(cpu_milli=8_000, memory_mib=16_384)
                use = RunUse(PodAmounts(cpu_milli=1_000, memory_mib=2_000), given, given, 600)
                for _ in range(2):
                    adjuster.uses.add(run_key_of(state.workloads["default/train-1"]), use)
                await adjuster.resize_running()
                after = await kubectl.read_pod("train-1")
                assert after["metadata"]["uid"] == before["metadata"]["uid"]
                assert await resources(kubectl, "train-1") == {
                    "requests": {"cpu": "1200m", "memory": "3008Mi"}, "limits": limits,
                }  # fmt: skip
                (told,) = adjuster.history
                assert (told.kind, told.refused) == (AdjustmentKind.IN_PLACE, "")
                assert [(each.amount, each.peak, each.given) for each in told.reasons] == [
                    ("cpu_milli", 1_000, 1_200), ("memory_mib", 2_000, 3_008),
                ]  # fmt: skip
                await until(
                    lambda: [pod.cpu_milli for pod in state.pods["default/train-1"].values()] == [1_200],
                )
            await kubectl.clean()

    run(test())


def test_a_guaranteed_pod_stays_guaranteed_and_nothing_grows(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            async with scheduling(options(plane, tmp_path)) as kaiwo:
                await kubectl.node("node-1")
                amounts = {"cpu": "4", "memory": "8Gi"}
                await kubectl.pod("sure", gpus=0, containers=[container("main", amounts, amounts)])
                await until_bound(kubectl, "sure")
                live = kaiwo.loop
                resizer = live.cluster.abilities.resizer
                assert resizer is not None
                await until(lambda: "default/sure" in live.state.pods)
                (slot,) = live.state.pods["default/sure"]
                await resizer.resize("default/sure", slot, PodUse(2_000, None), "it uses less")
                assert await resources(kubectl, "sure") == {
                    "requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "2", "memory": "8Gi"},
                }  # fmt: skip
                assert (await kubectl.read_pod("sure"))["status"]["qosClass"] == "Guaranteed"
                with pytest.raises(RefusedError, match="asks for no more"):
                    await resizer.resize("default/sure", slot, PodUse(6_000, 65_536), "never")
            await kubectl.clean()

    run(test())


def test_what_pods_use_comes_from_the_metrics_api(plane: Plane, tmp_path: Path) -> None:
    """The API group is served by a CustomResourceDefinition here, in the form of the metrics server."""

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            kubectl = Kubectl(client)
            await kubectl.clean()
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            name = "pods.metrics.k8s.io"
            await kubectl.delete(f"{path}/{name}")
            await kubectl.create(path, METRICS_KIND)
            try:
                async with scheduling(options(plane, tmp_path)) as kaiwo:
                    await kubectl.node("node-1")
                    await kubectl.pod("seen", gpus=0)
                    await until_bound(kubectl, "seen")
                    uses = kaiwo.loop.cluster.abilities.uses
                    assert uses is not None
                    usage = {"name": "main", "usage": {"cpu": "1500m", "memory": "700Mi"}}
                    body = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": "seen"}}
                    metrics = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
                    await _create_once_served(kubectl, metrics, body | {"containers": [usage, usage]})
                    state = kaiwo.loop.state
                    await until(lambda: "default/seen" in state.pods)
                    (slot,) = state.pods["default/seen"]
                    uses._next_at = 0.0  # type: ignore[attr-defined]
                    assert await uses.measure() == {("default/seen", slot): PodUse(3_000, 1_400)}
            finally:
                await kubectl.delete(f"{path}/{name}")
            await kubectl.clean()

    run(test())


async def _create_once_served(kubectl: Kubectl, path: str, body: Json) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await kubectl.create(path, body)
                return
            except Exception:  # the new kind is served a moment later
                await asyncio.sleep(0.1)


OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
METRICS_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "names": {"plural": "pods", "kind": "PodMetrics", "listKind": "PodMetricsList"},
        "scope": "Namespaced",
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OBJECT}}],
    },
}
