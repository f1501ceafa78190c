"""Levels that the objects of Kubernetes, Kueue and KAI-Scheduler state reach the workload, and hold on the server."""

from pathlib import Path
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerMetadata, OwnerObject
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.model.network.constraint import STATED, TopologyConstraint
from kaiwo.model.network.level_groups import levels_of
from kaiwo.model.workload import SubGroup, Workload
from tests.clusters.kubernetes.api_objects import cached_pod
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.controlplane.plane import Plane
from tests.waiting import run

RACK, BLOCK = "example.com/rack", "example.com/block"
GANG = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "2"}
KAI_REQUIRED, KAI_PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
KUEUE = "kueue.x-k8s.io/podset-"


def workload_of(cache: ClusterCache) -> Workload:
    cache.flush()
    (found,) = cache.published.workloads.values()
    return found


def gang_of(*annotations: dict[str, str], **more: Any) -> Workload:
    cache = ClusterCache()
    for number, notes in enumerate(annotations):
        cache.upsert_pod(cached_pod(f"p-{number}", gpus=1 + number, annotations={**GANG, **notes}, **more))
    return workload_of(cache)


def owner(document: Json) -> Owner:
    found = read_owner(document)
    assert isinstance(found, Owner)
    return found


@pytest.mark.parametrize(
    ("annotations", "levels"),
    [
        ({KAI_REQUIRED: RACK}, TopologyConstraint(required=RACK, strategy=STATED)),
        (
            {KAI_REQUIRED: BLOCK, KAI_PREFERRED: RACK, "kai.scheduler/topology": "racks"},
            TopologyConstraint("racks", BLOCK, RACK, STATED),
        ),
        ({KAI_REQUIRED: RACK, "kaiwo.ai/required-level": "leaf"}, TopologyConstraint(required="leaf")),
        ({"kai.scheduler/topology": "racks"}, None),
    ],
    ids=["required", "both", "ours first", "no level"],
)
def test_the_annotations_of_kai_on_a_pod(annotations: dict[str, str], levels: TopologyConstraint | None) -> None:
    assert gang_of(annotations, annotations).levels == levels


def test_the_annotations_of_kai_on_the_owner_of_the_pods() -> None:
    cache = ClusterCache()
    metadata = {"name": "train", "namespace": "default", "uid": "job"}
    job = owner({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2}})
    cache.gang_index.upsert_owner(OwnerObject(job, OwnerMetadata({KAI_PREFERRED: RACK}, {})))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": True}
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", ownerReferences=[reference], annotations=GANG))
    assert workload_of(cache).levels == TopologyConstraint(preferred=RACK, strategy=STATED)


def test_a_level_of_kai_that_is_no_label_is_told() -> None:
    cache = ClusterCache()
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", annotations={**GANG, KAI_REQUIRED: "no label!"}))
    cache.flush()
    assert KAI_REQUIRED in next(iter(cache.blocked_pods.values()))


def test_pod_sets_of_one_group_of_kueue_share_a_domain() -> None:
    notes = {KUEUE + "required-topology": RACK, KUEUE + "group-name": "pair"}
    workload = gang_of(notes, notes)
    assert workload.groups == (SubGroup("pair", levels=TopologyConstraint(required=RACK)),)
    assert [(role.group, role.levels) for role in workload.roles] == [("pair", None)] * 2
    levels = levels_of(workload)
    assert levels is not None
    assert levels.parts_of(0, 0) == levels.parts_of(1, 0) == ((0, -1),)


def test_pod_sets_without_a_group_have_domains_of_their_own() -> None:
    notes = {KUEUE + "required-topology": RACK}
    workload = gang_of(notes, notes)
    assert workload.groups == ()
    assert [role.levels for role in workload.roles] == [TopologyConstraint(required=RACK)] * 2


def test_levels_are_read_beside_long_annotations_of_others() -> None:
    """Long annotations are cut down to those that are read."""
    long = {"example.com/config": "x" * 4_000}
    notes = {KUEUE + "preferred-topology": BLOCK, KUEUE + "slice-required-topology": RACK, KUEUE + "slice-size": "1"}
    workload = gang_of(notes | long, notes | long)
    assert workload.roles[0].levels == TopologyConstraint("", "", BLOCK, "", 1, RACK)
    kai = gang_of({KAI_REQUIRED: RACK} | long, {KAI_REQUIRED: RACK} | long)
    assert kai.required_level == RACK


def pod_group(policy: Json, key: str) -> Json:
    spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": key}]}}
    metadata = {"name": "g", "namespace": "default", "uid": "g"}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(("policy", "needed"), [({"gang": {"minCount": 3}}, 3), ({"basic": {}}, 1)])
def test_the_topology_constraint_of_a_pod_group_is_a_required_level(policy: Json, needed: int) -> None:
    cache = ClusterCache()
    cache.gang_index.upsert_owner(OwnerObject(owner(pod_group(policy, RACK))))
    for number in range(3):
        cache.upsert_pod(cached_pod(f"p-{number}", schedulingGroup={"podGroupName": "g"}))
    workload = workload_of(cache)
    assert workload.levels == TopologyConstraint(required=RACK)
    assert sum(role.needed for role in workload.roles) == needed


def test_a_basic_pod_group_without_a_constraint_is_no_gang() -> None:
    cache = ClusterCache()
    document = pod_group({"basic": {}}, RACK)
    del document["spec"]["schedulingConstraints"]
    cache.gang_index.upsert_owner(OwnerObject(owner(document)))
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", schedulingGroup={"podGroupName": "g"}))
    cache.flush()
    assert len(cache.published.workloads) == 2


def test_on_the_server_a_pod_group_stays_in_one_rack_or_waits(alpha_plane: Plane, tmp_path: Path) -> None:
    async def group(kubectl: Kubectl, name: str, pods: int) -> None:
        body = pod_group({"gang": {"minCount": pods}}, RACK)
        body["metadata"] = {"name": name}
        path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
        made = await kubectl.create(path, body)
        assert made["spec"]["schedulingConstraints"] == {"topology": [{"key": RACK}]}  # the server knows the field
        for number in range(pods):
            await kubectl.pod(f"{name}-{number}", gpus=8, schedulingGroup={"podGroupName": name})

    async def test() -> None:
        async with scheduled(alpha_plane, tmp_path) as kubectl:
            racks = {"a": "r1", "b": "r2", "c": "r2"}
            for name, rack in racks.items():
                await kubectl.node(name, labels={RACK: rack})
            await group(kubectl, "three", 3)
            await until_said(kubectl, "three-0", f"must run in one {RACK}")
            await group(kubectl, "two", 2)
            bound = [await until_bound(kubectl, f"two-{number}") for number in range(2)]
            assert {racks[pod["spec"]["nodeName"]] for pod in bound} == {"r2"}

    run(test())
