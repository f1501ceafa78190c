"""Kueue beside us on the real API server: its gates, its words, and where it said. Kueue is played by the test."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.kueue_gates import KueueWorkload, read_kueue_state
from kaiwo.model.network.constraint import TopologyConstraint
from tests.clusters.kubernetes.api_objects import cached_pod, wire_node
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import run, until

REAL = ROOT.parent / "shared" / "fixtures" / "crds" / "kueue.x-k8s.io_workloads.yaml"
GATE, FLAVOR = "kueue.x-k8s.io/admission", {"example.com/flavor": "mi300x"}
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


def own_kind() -> Json:
    """The kind as far as this version reads it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1beta2", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    # The API server wants a word about kinds in groups of Kubernetes' own projects.
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io", "annotations": approved},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
            "versions": [version],
        },
    }


@pytest.fixture(params=["own", "real"])
def kueues_kind(plane: Plane, request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "real" and not REAL.exists():
        pytest.skip(f"Kueue's own definition is not there ({REAL})")
    text = REAL.read_text() if request.param == "real" else yaml.safe_dump(own_kind())
    plane.kubectl("apply", "--server-side", "-f", "-", text=text)
    asyncio.run(until(lambda: "items" in plane.kubectl("get", "workloads.kueue.x-k8s.io", "-o", "yaml", check=False)))
    yield
    plane.kubectl("delete", "crd", "workloads.kueue.x-k8s.io")


@pytest.mark.usefixtures("kueues_kind")
def test_a_group_waits_for_kueue_and_goes_where_kueue_said(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.node("plain")
            await kubectl.node("flavored", labels=FLAVOR)
            for number in range(2):
                await kubectl.pod(
                    f"w-{number}",
                    gpus=4,
                    labels={
                        "kueue.x-k8s.io/queue-name": "team-a",
                        "kueue.x-k8s.io/managed": "true",
                        "kueue.x-k8s.io/pod-group-name": "group",
                    },
                    annotations={"kueue.x-k8s.io/pod-group-total-count": "2"},
                    schedulingGates=[{"name": GATE}],
                )
            await until_said(kubectl, "w-0", "Kueue, which has no Workload for it yet")
            await kubectl.create(WORKLOADS, workload("group", "team-a"))
            await tell(kubectl, "group", QuotaReserved=("False", "insufficient quota for amd.com/gpu in flavor mi300x"))
            await until_said(kubectl, "w-1", "(queue team-a): insufficient quota for amd.com/gpu in flavor mi300x")
            assert (await kubectl.condition("w-1"))["reason"] == "SchedulingGated"
            await tell(kubectl, "group", QuotaReserved=("True", "reserved"), Admitted=("True", "admitted"))
            await until_said(kubectl, "w-0", "Kueue has admitted it to cluster-a and has not removed its gate yet")
            before = (await kubectl.get(f"{WORKLOADS}/group"))["metadata"]["resourceVersion"]
            for number in range(2):  # as Kueue lets pods go: the flavor's labels, and no gate
                await kubectl.patch(
                    pod_path(f"w-{number}"), {"spec": {"schedulingGates": None, "nodeSelector": FLAVOR}}
                )
            for number in range(2):
                assert (await until_bound(kubectl, f"w-{number}"))["spec"]["nodeName"] == "flavored"
            assert (await kubectl.get(f"{WORKLOADS}/group"))["metadata"]["resourceVersion"] == before

    run(test())


def test_without_kueue_its_labels_keep_nobody_from_starting(plane: Plane, tmp_path: Path) -> None:
    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.node("plain")
            await kubectl.pod("labelled", labels={"kueue.x-k8s.io/queue-name": "team-a"})
            await until_bound(kubectl, "labelled")

    run(test())


def test_kueues_queue_is_ours_where_there_is_one_of_that_name() -> None:
    from kaiwo.model.queue import Queue

    cache = ClusterCache()
    cache.upsert_node(wire_node("node-1"))
    cache.upsert_pod(cached_pod("p", labels={"kueue.x-k8s.io/queue-name": "team-a"}))
    cache.flush()
    assert cache.published.workloads["default/p"].queue == "default"
    cache.queue_events(cache.queue_cache.upsert(Queue("team-a")))
    cache.flush()
    assert cache.published.workloads["default/p"].queue == "team-a"
    cache.queue_events(cache.queue_cache.delete("team-a"))
    cache.flush()
    assert cache.published.workloads["default/p"].queue == "default"


REQUIRED = {
    "kueue.x-k8s.io/podset-required-topology": "example.com/rack",
    "kaiwo.ai/gang": "g",
    "kaiwo.ai/gang-size": "2",
}


def test_a_domain_that_nobody_chose_is_chosen_by_us() -> None:
    cache = ClusterCache()
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", annotations=REQUIRED))
    cache.flush()
    (workload,) = cache.published.workloads.values()
    assert [role.levels for role in workload.roles] == [TopologyConstraint(required="example.com/rack")]
    assert cache.blocked_pods == {}


@pytest.mark.parametrize(
    ("annotations", "levels"),
    [
        ({"podset-preferred-topology": "rack"}, TopologyConstraint(preferred="rack")),
        ({"podset-unconstrained-topology": "true"}, None),
        (
            {"podset-required-topology": "block", "podset-slice-required-topology": "rack", "podset-slice-size": "2"},
            TopologyConstraint(required="block", segment=2, segment_level="rack"),
        ),
        ({"podset-slice-required-topology": "rack", "podset-slice-size": "many"}, None),
    ],
    ids=["preferred", "unconstrained", "slices", "bad size"],
)
def test_the_other_annotations_of_kueue(annotations: dict[str, str], levels: TopologyConstraint | None) -> None:
    cache = ClusterCache()
    written = {f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()}
    for number in range(2):
        gang = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2"}
        cache.upsert_pod(cached_pod(f"p-{number}", annotations={**gang, **written}))
    cache.flush()
    (workload,) = cache.published.workloads.values()
    assert [role.levels for role in workload.roles] == [levels]


@pytest.mark.parametrize(
    "chosen",
    [
        {"nodeSelector": {"kubernetes.io/hostname": "n"}},
        {"nodeSelector": {"example.com/rack": "r1"}},
        {"labels": {"kueue.x-k8s.io/tas": "true"}},
    ],
    ids=["host", "rack", "mark"],
)
def test_a_domain_that_kueue_chose_is_in_the_node_selectors(chosen: dict[str, Any]) -> None:
    cache = ClusterCache()
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", annotations=REQUIRED, **chosen))
    cache.flush()
    assert list(cache.published.workloads) == ["default/g"]
    assert cache.blocked_pods == {}


@pytest.mark.parametrize(
    ("spec", "status", "sentence"),
    [
        ({"active": False}, {}, "Kueue has deactivated it (no queue); set spec.active of its Workload w to true again"),
        ({"queueName": "q"}, {}, "Kueue has not admitted it yet (queue q)"),
        (
            {"queueName": "q"},
            {
                "conditions": [{"type": "QuotaReserved", "status": "True"}],
                "admission": {"clusterQueue": "c"},
                "admissionChecks": [
                    {"name": "money", "state": "Pending", "message": "asked"},
                    {"name": "done", "state": "Ready"},
                ],
            },
            "Kueue has reserved quota of c for it and waits for money (asked)",
        ),
    ],
    ids=["set-aside", "new", "checks"],
)
def test_what_a_workload_says(spec: Json, status: Json, sentence: str) -> None:
    document = {"metadata": {"name": "w", "namespace": "n"}, "spec": spec, "status": status}
    item = msgspec.json.decode(msgspec.json.encode(document), type=KueueWorkload)
    assert read_kueue_state(item).reason == sentence


def workload(name: str, queue: str) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": "work"}], "restartPolicy": "Never"}}
    spec = {"queueName": queue, "podSets": [{"name": "main", "count": 2, "template": template}]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name}, "spec": spec}


async def tell(kubectl: Kubectl, name: str, **facts: tuple[str, str]) -> None:
    """What Kueue writes."""
    at = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": status, "reason": "Told", "message": words, "lastTransitionTime": at}
        for kind, (status, words) in facts.items()
    ]
    assigned = {"name": "main", "count": 2, "flavors": {"amd.com/gpu": "mi300x"}, "resourceUsage": {"amd.com/gpu": "8"}}
    admission = {"clusterQueue": "cluster-a", "podSetAssignments": [assigned]} if "Admitted" in facts else None
    await kubectl.patch(f"{WORKLOADS}/{name}/status", {"status": {"conditions": conditions, "admission": admission}})
