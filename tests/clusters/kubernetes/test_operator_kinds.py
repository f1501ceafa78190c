"""Kinds of operators on a real API server: found in whatever version serves them, also when that changes."""

import asyncio
from collections.abc import Iterator

import pytest
import yaml

from kaiwo.clusters.kubernetes.watch.operator_kinds import discover
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.kubectl_cluster import Json, opened
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run, until

GROUP, LABEL = "scheduling.x-k8s.io", "scheduling.x-k8s.io/pod-group"


def definition(group: str, kind: str, *versions: str, served: tuple[str, ...] = ()) -> str:
    """The last version is the one that is stored; those that are not in `served` are there for old objects only."""
    plural = kind.lower() + "s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    document: Json = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server wants a word about kinds in groups of Kubernetes' own projects.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": name,
                    "served": name in (served or versions),
                    "storage": name == versions[-1],
                    "schema": schema,
                }
                for name in versions
            ],
        },
    }
    return yaml.safe_dump(document)


def install(plane: Plane, text: str) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", "-", text=text)


@pytest.fixture
def training_kinds(plane: Plane) -> Iterator[None]:
    """MPI has an operator of its own, which serves another version than the others of the group."""
    install(plane, definition("kubeflow.org", "PyTorchJob", "v1"))
    install(plane, definition("kubeflow.org", "MPIJob", "v2beta1"))
    yield
    plane.kubectl("delete", "crd", "pytorchjobs.kubeflow.org", "mpijobs.kubeflow.org")


@pytest.mark.usefixtures("training_kinds")
def test_a_kind_is_found_in_another_version_than_its_group_prefers(plane: Plane) -> None:
    wanted = {("kubeflow.org", "PyTorchJob"), ("kubeflow.org", "MPIJob"), ("kubeflow.org", "TFJob")}

    async def test() -> None:
        async with client_for(plane.kubeconfig) as client:
            async with asyncio.timeout(PATIENCE_S):
                while len(found := await discover(client, wanted)) < 2:
                    await asyncio.sleep(0.05)
            assert {(each.kind, each.path) for each in found} == {
                ("PyTorchJob", "/apis/kubeflow.org/v1/pytorchjobs"),
                ("MPIJob", "/apis/kubeflow.org/v2beta1/mpijobs"),
            }

    run(test())


@pytest.fixture
def pod_groups(plane: Plane) -> Iterator[None]:
    install(plane, definition(GROUP, "PodGroup", "v1alpha1"))
    yield
    plane.kubectl("delete", "crd", f"podgroups.{GROUP}")


@pytest.mark.usefixtures("pod_groups")
def test_an_operator_that_is_updated_takes_its_objects_along(plane: Plane) -> None:
    """The old version is served no more. Gangs that were known stay whole, and new ones are found at once."""

    async def test() -> None:
        async with opened(plane) as scene:
            kubectl, cache = scene.kubectl, scene.cluster.cache

            async def group(version: str, name: str) -> None:
                body = {"apiVersion": f"{GROUP}/{version}", "kind": "PodGroup", "metadata": {"name": name}}
                path = f"/apis/{GROUP}/{version}/namespaces/default/podgroups"
                await kubectl.create(path, body | {"spec": {"minMember": 2}})

            def waits(name: str) -> bool:
                return "1 of the 2 that start together do" in cache.blocked_pods.get(("default", name), "")

            await group("v1alpha1", "early")
            await kubectl.pod("early-0", labels={LABEL: "early"})
            await scene.until(lambda: waits("early-0"), "the gang to wait")
            moved = definition(GROUP, "PodGroup", "v1alpha1", "v1beta1", served=("v1beta1",))
            task = asyncio.create_task(asyncio.to_thread(install, plane, moved))
            path = f"/apis/{GROUP}/v1beta1/podgroups"

            def has_moved() -> bool:
                assert waits("early-0")  # nobody forgets it meanwhile: alone it would start
                return any(each.resource.path == path and each.version for each in scene.cluster.watch.informers)

            await until(has_moved, "the new version to be followed")
            await task
            await group("v1beta1", "late")
            await kubectl.pod("late-0", labels={LABEL: "late"})
            await scene.until(lambda: waits("late-0"), "the new gang to wait")
            await kubectl.pod("early-1", labels={LABEL: "early"})
            await scene.until(lambda: ("default", "early-0") not in cache.blocked_pods, "the gang to be whole")

    run(test())
