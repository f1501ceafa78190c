"""Claims that wait for their first pod: the scheduler chooses the volume, or the node where one is made."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.volumes.claim_matching import SELECTED_NODE, NodeConstraint
from kaiwo.clusters.kubernetes.volumes.volume_cache import NO_PROVISIONER, ReservedVolumes, VolumeCache
from kaiwo.model.affinity import NodeRule
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, Scene, opened, pod_path, start_of, whole
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

CLASSES, VOLUMES = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
HOST = "kubernetes.io/hostname"


def storage_class(name: str, provisioner: str = NO_PROVISIONER, **more: Any) -> Json:
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **more}


def claim(name: str, kind: str = "late", size: str = "1Gi", **more: Any) -> Json:
    resources = {"requests": {"storage": size}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": kind, **more}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def volume(name: str, node: str, size: str = "2Gi", kind: str = "late", **more: Any) -> Json:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}]
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": kind,
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    return {"metadata": {"name": name}, "spec": spec | more, "status": {"phase": "Available"}}


def using(*claims: str) -> list[Json]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def known(*documents: Json) -> VolumeCache:
    """Volumes that know of these."""
    volumes = VolumeCache()
    for document in documents:
        text = msgspec.json.encode(document)
        if "provisioner" in document:
            volumes.upsert_class(msgspec.json.decode(text, type=wire_objects.StorageClass))
        elif "capacity" in document["spec"]:
            volumes.upsert_volume(msgspec.json.decode(text, type=wire_objects.PersistentVolume))
        else:
            volumes.upsert_claim(msgspec.json.decode(text, type=wire_objects.Claim))
    return volumes


def test_a_pod_may_go_where_a_free_volume_serves_its_claim() -> None:
    volumes = known(
        storage_class("late"),
        claim("data"),
        volume("a", "node-1"),
        volume("b", "node-2"),
        volume("small", "node-3", size="1Mi"),
        volume("other", "node-4", kind="other"),
        volume("taken", "node-5", claimRef={"namespace": "x", "name": "y"}),
        volume("block", "node-6", volumeMode="Block"),
        volume("shared", "node-7", accessModes=["ReadOnlyMany"]),
    )
    rule = NodeRule(HOST, "In", ("node-1", "node-2"))
    assert volumes.rules("default", ("data",)) == NodeConstraint((), (((rule,),),))


def test_a_class_that_makes_volumes_makes_them_where_it_may() -> None:
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    anywhere = known(storage_class("late", "example.com/disks"), claim("data"))
    assert anywhere.rules("default", ("data",)) == NodeConstraint()
    zones = known(storage_class("late", "example.com/disks", allowedTopologies=terms), claim("data"))
    assert zones.rules("default", ("data",)) == NodeConstraint((), (((NodeRule("zone", "In", ("a", "b")),),),))
    assert "no free volume" in str(zones.reserve("default", ["data"], "n", {"zone": "c"}))
    found = zones.reserve("default", ["data"], "n", {"zone": "a"})
    assert isinstance(found, ReservedVolumes)
    assert [step.node for step in found.fresh] == ["n"]


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([storage_class("late"), claim("data")], "no free volume of class late serves its claim data (1 GiB, Read"),
        ([claim("data")], "storage class late, which does not exist; create it"),
        ([storage_class("late") | {"volumeBindingMode": "Immediate"}, claim("data")], "is not bound to a volume yet"),
    ],
)
def test_what_is_missing_is_said(documents: list[Json], words: str) -> None:
    assert words in str(known(*documents).rules("default", ("data",)))


def test_two_claims_never_get_one_volume() -> None:
    labels = {HOST: "node-1"}
    volumes = known(
        storage_class("late"), claim("a"), claim("b"), volume("small", "node-1"), volume("large", "node-1", size="9Gi")
    )
    both = volumes.reserve("default", ["a", "b"], "node-1", labels)
    assert isinstance(both, ReservedVolumes)
    assert {step.volume for step in both.steps} == {"small", "large"}
    volumes.release(both.fresh)
    first = volumes.reserve("default", ["a"], "node-1", labels)
    assert isinstance(first, ReservedVolumes)
    assert [step.volume for step in first.steps] == ["small"]
    assert volumes.reserve("default", ["a"], "node-1", labels) == ReservedVolumes(
        first.steps
    )  # another pod of the same claim
    assert "elsewhere" in str(volumes.reserve("default", ["a"], "node-2", {HOST: "node-2"}))


def test_a_claim_that_is_being_bound_gets_no_second_volume() -> None:
    holder = {"namespace": "default", "name": "data", "uid": "uid-data"}
    its_own = volume("own", "node-1", size="9Gi", claimRef=holder) | {"status": {"phase": "Bound"}}
    volumes = known(storage_class("late"), claim("data"), its_own, volume("free", "node-2"))
    assert volumes.rules("default", ("data",)) == NodeConstraint((), (((NodeRule(HOST, "In", ("node-1",)),),),))
    named = known(storage_class("late"), claim("data", volumeName="own"), its_own)
    assert "not bound to a volume yet" in str(named.rules("default", ("data",)))
    assert "not bound to a volume yet" in str(named.reserve("default", ["data"], "node-1", {HOST: "node-1"}))


@pytest.fixture
def binder(plane: Plane) -> Iterator[None]:
    """The volume controller of Kubernetes."""
    plane.start_controllers("--controllers=persistentvolume-binder-controller")
    yield
    plane.kill("kube-controller-manager")


@asynccontextmanager
async def _stored(plane: Plane, *documents: Json) -> AsyncIterator[Scene]:
    paths = {"provisioner": CLASSES, "capacity": VOLUMES}
    async with opened(plane) as scene:
        made = []
        for each in documents:
            each = {key: value for key, value in each.items() if key != "status"}
            path = next((paths[key] for key in paths if key in each or key in each.get("spec", {})), CLAIMS)
            await scene.kubectl.create(path, each)
            made.append(f"{path}/{each['metadata']['name']}")
        yield scene
        for pod in (await scene.kubectl.get("/api/v1/pods"))["items"]:
            await scene.kubectl.delete(pod_path(pod["metadata"]["name"]))
        await _remove(scene.kubectl, made)


async def _remove(kubectl: Kubectl, paths: list[str]) -> None:
    for path in reversed(paths):
        if path.startswith(CLASSES):
            await kubectl.delete(path)
            continue
        await kubectl.patch(path, {"metadata": {"finalizers": None}})
        await kubectl.delete(path)


async def _until_bound(kubectl: Kubectl, name: str) -> Json:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await kubectl.read_pod(name))["spec"].get("nodeName"):
            await asyncio.sleep(0.02)
    return found


async def _until_selected(kubectl: Kubectl, node: str) -> Json:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await kubectl.get(f"{CLAIMS}/data")
            if found["metadata"].get("annotations", {}).get(SELECTED_NODE) == node:
                return found
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("binder")
def test_a_claim_gets_the_volume_of_the_node_that_its_pod_goes_to(plane: Plane) -> None:
    async def test() -> None:
        documents = (storage_class("late"), volume("local", "node-2"), claim("data"))
        async with _stored(plane, *documents) as scene:
            await scene.kubectl.pod("a", volumes=using("data"))
            await scene.until_waiting("a")
            (choice,) = scene.workload("a").roles[0].request.node_choices
            assert choice == ((NodeRule(HOST, "In", ("node-2",)),),)
            await scene.start(start_of("a", node="node-2"))
            assert (await _until_bound(scene.kubectl, "a"))["spec"]["nodeName"] == "node-2"
            stored = await scene.kubectl.get(f"{CLAIMS}/data")
            assert (stored["spec"]["volumeName"], stored["status"]["phase"]) == ("local", "Bound")

    run(test())


@pytest.mark.usefixtures("binder")
def test_a_claim_for_one_pod_is_given_to_one_of_two_pods_of_a_plan(plane: Plane) -> None:
    async def test() -> None:
        alone = ["ReadWriteOncePod"]
        documents = (storage_class("late"), volume("local", "node-1", accessModes=alone))
        async with _stored(plane, *documents, claim("data", accessModes=alone)) as scene:
            for name in ("a", "b"):
                await scene.kubectl.pod(name, volumes=using("data"))
            await scene.until_waiting("a", "b")
            starts = (start_of("a", devices=whole(0)), start_of("b", devices=whole(1)))
            assert await scene.start(*starts) == ("default/a/main-0",)
            await _until_bound(scene.kubectl, "a")
            await scene.until(lambda: "default/b" not in scene.state.workloads)
            assert "and pod a uses it" in scene.cluster.cache.blocked_pods["default", "b"]
            await scene.kubectl.delete(pod_path("a"))
            await scene.until_waiting("b")

    run(test())


@pytest.mark.usefixtures("binder")
def test_a_provisioner_is_told_the_node_and_waited_for(plane: Plane) -> None:
    async def test() -> None:
        made = claim("data", kind="made")
        async with _stored(plane, storage_class("made", "example.com/disks"), made) as scene:
            kubectl = scene.kubectl
            await kubectl.pod("a", volumes=using("data"))
            await scene.until_waiting("a")
            await scene.start(start_of("a", node="node-1"))
            stored = await _until_selected(kubectl, "node-1")
            assert "nodeName" not in (await kubectl.read_pod("a"))["spec"]
            holder = {"namespace": "default", "name": "data", "uid": stored["metadata"]["uid"]}
            disk = volume("disk", "node-1", kind="made", claimRef=holder)
            await kubectl.create(VOLUMES, disk)
            assert (await _until_bound(kubectl, "a"))["spec"]["nodeName"] == "node-1"
            await _remove(kubectl, [f"{VOLUMES}/disk"])

    run(test())


@pytest.mark.usefixtures("binder")
def test_a_start_without_its_volume_is_taken_back(plane: Plane) -> None:
    async def test() -> None:
        async with _stored(plane, storage_class("made", "example.com/disks"), claim("data", kind="made")) as scene:
            await scene.kubectl.pod("a", volumes=using("data"))
            await scene.until_waiting("a")
            await scene.start(start_of("a", node="node-1"))
            await _until_selected(scene.kubectl, "node-1")
            await scene.kubectl.patch(f"{CLAIMS}/data", {"metadata": {"annotations": {SELECTED_NODE: None}}})
            await scene.until(lambda: "no volume could be provisioned" in scene.workload("a").not_before_why)
            assert ("default/a", "main-0") not in scene.state.pods

    run(test())
