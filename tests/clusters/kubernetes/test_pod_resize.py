"""Pods that are resized in place count as kube-scheduler counts them."""

from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from tests.clusters.kubernetes.api_objects import cached_pod, wire_node

Json = dict[str, Any]


def amounts(cpu: str, memory: str = "1Gi") -> Json:
    return {"cpu": cpu, "memory": memory}


def container(name: str, cpu: str, **more: Any) -> Json:
    return {"name": name, "image": "x", "resources": {"requests": amounts(cpu)}, **more}


def given(name: str, runs: str | None, allocated: str | None = None) -> Json:
    found: Json = {"name": name, "ready": True, "imageID": "x"}
    if allocated is not None:
        found["allocatedResources"] = amounts(allocated)
    if runs is not None:
        found["resources"] = {"requests": amounts(runs)}
    return found


def resized(cpu: str, *statuses: Json, reason: str = "", **more: Any) -> CachedPod:
    pending = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    status = {"containerStatuses": list(statuses), "conditions": pending} | more.pop("status", {})
    return cached_pod("p", 0, "node-1", "Running", containers=[container("c", cpu)], status=status, **more)


@pytest.mark.parametrize(
    ("pod", "cpu_milli"),
    [
        (resized("1", given("c", "1", "1")), 1000),
        (resized("1", given("c", "3", "3")), 3000),  # shrinks, and has not yet
        (resized("1", given("c", "2", "3")), 3000),
        (resized("4", given("c", "2", "2")), 4000),  # grows
        (resized("4", given("c", "2", "2"), reason="Deferred"), 4000),
        (resized("4", given("c", "2", "2"), reason="Infeasible"), 2000),
        (resized("4", given("c", "2", "3"), reason="Infeasible"), 3000),
        (resized("1", given("c", None, "3")), 1000),  # nothing runs yet: the spec alone counts
        (resized("1", given("somebody", "3", "3")), 1000),
        (resized("1", given("c", "3")), 3000),
    ],
)
def test_the_larger_of_spec_and_status_counts(pod: CachedPod, cpu_milli: int) -> None:
    assert (pod.spec.request.cpu_milli, pod.spec.request.memory_mib) == (cpu_milli, 1024)


def test_each_container_counts_by_itself_and_sidecars_are_containers() -> None:
    pod = cached_pod(
        "p",
        0,
        "node-1",
        "Running",
        containers=[container("a", "1"), container("b", "1")],
        initContainers=[container("side", "1", restartPolicy="Always"), container("once", "1")],
        status={
            "containerStatuses": [given("b", "3", "3"), given("a", "1", "1")],
            "initContainerStatuses": [given("side", "2", "2"), given("once", "9", "9")],
        },
    )
    assert pod.spec.request.cpu_milli == 1000 + 3000 + 2000


def test_the_pod_as_a_whole_is_resized_too() -> None:
    whole = {"requests": amounts("2")}
    status = {"resources": {"requests": amounts("5")}, "allocatedResources": amounts("4")}
    assert resized("1", resources=whole, status=status).spec.request.cpu_milli == 5000
    assert resized("1", resources=whole).spec.request.cpu_milli == 2000


def test_a_status_that_repeats_the_spec_makes_no_other_ask() -> None:
    plain = cached_pod("p", 0, containers=[container("c", "1")])
    assert resized("1", given("c", "1", "1")).spec is plain.spec
    assert resized("1", given("c", "1")).spec is plain.spec
    assert resized("1", given("c", "3", "3")).spec is resized("1", given("c", "3", "3")).spec


def test_a_pod_that_shrinks_keeps_its_node_until_the_kubelet_has_given_back() -> None:
    cache = ClusterCache()
    cache.upsert_node(wire_node("node-1"))
    cache.upsert_pod(resized("1", given("c", "60", "60")))
    cache.flush()
    assert cache.published.pods["default/p"]["main-0"].cpu_milli == 60_000
    cache.upsert_pod(resized("1", given("c", "1", "1")))
    cache.flush()
    assert cache.published.pods["default/p"]["main-0"].cpu_milli == 1000
