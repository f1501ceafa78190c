"""A hostile tenant on the real API server without webhooks and without admission policies: only the scheduler is there.

He has every verb on the pods of one namespace and on their subresources. What he says about his pods gains him nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import RunningScheduler, scheduling
from kaiwo.clusters.kubernetes.client import ApiError
from tests.clusters.kubernetes.api_client import client_for
from tests.clusters.kubernetes.chart import account_kubeconfig
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.running_scheduler import until_bound, until_said
from tests.conftest import ROOT
from tests.controlplane.plane import Plane
from tests.waiting import PATIENCE_S, run

HOME = "t-unguarded"
QUEUES = "/apis/kaiwo.ai/v1alpha2/kaiwoqueues"
# The namespace stays for the next module: this control plane has nobody who would remove one for good.
TENANT = """
apiVersion: v1
kind: Namespace
metadata: {name: t-unguarded}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: t-unguarded}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: t-unguarded}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: t-unguarded}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: t-unguarded}
rules:
  - apiGroups: [""]
    resources: [pods, pods/status, pods/binding, bindings, pods/resize, pods/eviction]
    verbs: ["*"]
"""


@pytest.fixture(scope="module")
def tenant(plane: Plane) -> Iterator[Path]:
    """The kubeconfig of the tenant."""
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    plane.kubectl("apply", "-f", "-", text=TENANT)
    yield account_kubeconfig(plane, HOME, "tenant")
    plane.kubectl("delete", "kaiwoqueues", "--all", check=False)


class World(NamedTuple):
    admin: Kubectl  # and the kubelets
    tenant: Kubectl
    scheduler: RunningScheduler

    async def says(self, pod: str, **status: object) -> None:
        """The tenant writes the status of his pod."""
        await self.tenant.patch(pod_path(pod, HOME) + "/status", {"status": status})

    async def is_gone(self, pod: str) -> bool:
        try:
            await self.admin.read_pod(pod, HOME)
        except ApiError as error:
            return error.is_not_found
        return False

    async def events(self, pod: str) -> list[str]:
        found = await self.admin.get(f"/api/v1/namespaces/{HOME}/events")
        return [each["message"] for each in found["items"] if each["involvedObject"]["name"] == pod]


@asynccontextmanager
async def unguarded(plane: Plane, tenant: Path, home: Path) -> AsyncIterator[World]:
    async with client_for(plane.kubeconfig) as client, client_for(tenant) as hostile:
        admin = Kubectl(client)
        await admin.clean()
        await admin.node("node-1")
        options = SchedulerOptions(str(home), port=0, kubeconfig=str(plane.kubeconfig), leader_elect=False)
        async with scheduling(options) as scheduler:
            yield World(admin, Kubectl(hostile), scheduler)
        await admin.clean()


async def stays_waiting(admin: Kubectl, name: str, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        assert not (await admin.read_pod(name))["spec"].get("nodeName"), f"{name} was bound"
        await asyncio.sleep(0.1)


def binding(pod: str) -> Json:
    return {"metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}}


def at(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_nomination_that_a_tenant_writes_keeps_no_space(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            for number in range(3):
                await world.tenant.pod(f"greedy-{number}", 8, HOME, schedulerName="nobody")
                await world.says(f"greedy-{number}", nominatedNodeName="node-1")
            await world.tenant.pod("ours", 8, HOME, nodeSelector={"no": "where"})
            await world.says("ours", nominatedNodeName="node-1")
            await world.admin.pod("other", 8)
            await until_bound(world.admin, "other")

    run(check())


def test_amounts_that_a_tenant_writes_fill_no_node(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            await world.tenant.pod("small", 1, HOME)
            while not (await world.admin.read_pod("small", HOME))["spec"].get("nodeName"):
                await asyncio.sleep(0.05)
            said = {"name": "main", "image": "work", "imageID": "", "ready": True, "restartCount": 0,
                    "resources": {"requests": {"cpu": "192"}}, "allocatedResources": {"cpu": "192"}}  # fmt: skip
            await world.says("small", phase="Running", containerStatuses=[said])
            await world.admin.pod("other", 7)
            await until_bound(world.admin, "other")

    run(check())


def test_an_end_that_the_kubelet_contradicts_frees_nothing(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    """A kubelet whose pod runs writes the phase again within ten seconds, however often the tenant denies it."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            await world.tenant.pod("runs", 8, HOME)
            while not (await world.admin.read_pod("runs", HOME))["spec"].get("nodeName"):
                await asyncio.sleep(0.05)
            await world.admin.phase("runs", "Running", HOME)
            await world.admin.pod("other", 8)
            await until_said(world.admin, "other", "GPU")
            for phase in ("Succeeded", "Failed", "Succeeded"):
                await world.says("runs", phase=phase)
                await stays_waiting(world.admin, "other", 6)
                await world.admin.phase("runs", "Running", HOME)  # the kubelet
            assert sum(world.scheduler.loop.state.used["default"][:1]) == 8000, "it pays all the time"
            await world.admin.phase("runs", "Succeeded", HOME)  # and now it is true
            await until_bound(world.admin, "other")

    run(check())


def test_a_start_that_a_tenant_writes_changes_nothing(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    """An early one would give him more to lose, a late one would make him forever new."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            began_s = time.time()
            await world.tenant.pod("early", 1, HOME)
            await world.tenant.pod("late", 1, HOME)
            for name in ("early", "late"):
                while not (await world.admin.read_pod(name, HOME))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            pods = world.scheduler.cluster.cache.published.pods
            await world.says("early", phase="Running", startTime="1999-01-01T00:00:00Z")
            await world.says("late", phase="Running", startTime=at(began_s + 86_400))
            await asyncio.sleep(1.5)
            for name in ("early", "late"):
                since_s = pods[f"{HOME}/{name}"]["main-0"].since_s
                assert began_s - 2 <= since_s <= time.time(), name
            known = {name: pods[f"{HOME}/{name}"]["main-0"].since_s for name in ("early", "late")}
            await world.says("early", startTime=at(time.time() + 5))
            await world.says("late", startTime=at(began_s - 86_400))
            await asyncio.sleep(1.5)
            assert {name: pods[f"{HOME}/{name}"]["main-0"].since_s for name in known} == known

    run(check())


@pytest.mark.parametrize("way", ["binding", "bindings", "nodeName"])
def test_a_pod_that_a_tenant_binds_himself_is_stopped_and_told_why(
    plane: Plane, tenant: Path, tmp_path: Path, way: str
) -> None:
    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            await world.admin.pod("first", 1)
            await until_bound(world.admin, "first")
            # Kaiwo itself finds no place for it; a Binding asks no selector.
            spec = {"nodeName": "node-1"} if way == "nodeName" else {"nodeSelector": {"no": "where"}}
            await world.tenant.pod("mine", 7, HOME, terminationGracePeriodSeconds=0, **spec)
            if way == "binding":
                await world.tenant.create(f"{pod_path('mine', HOME)}/binding", binding("mine"))
            elif way == "bindings":
                await world.tenant.create(f"/api/v1/namespaces/{HOME}/bindings", binding("mine"))
            until_s = time.monotonic() + PATIENCE_S
            while not await world.is_gone("mine"):
                assert time.monotonic() < until_s, await world.admin.read_pod("mine", HOME)
                await asyncio.sleep(0.1)
            assert any("somebody else bound it" in each for each in await world.events("mine"))
            assert (await world.admin.read_pod("first"))["spec"]["nodeName"], "what Kaiwo bound stays"
            await world.admin.pod("other", 7)
            await until_bound(world.admin, "other")

    run(check())


def test_a_grace_period_of_years_is_no_way_to_keep_gpus_free_of_charge(
    plane: Plane, tenant: Path, tmp_path: Path
) -> None:
    """He deletes his pod, and its program goes on: his queue could run as much again beside it."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            spec = {"namespaces": [HOME], "resources": {"gpu": {"quota": 4, "limit": 4}}}
            await world.admin.create(QUEUES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue",
                                              "metadata": {"name": "slow"}, "spec": spec})  # fmt: skip
            await world.tenant.pod("stays", 4, HOME, terminationGracePeriodSeconds=300_000_000)
            until_s = time.monotonic() + PATIENCE_S
            while not (await world.admin.read_pod("stays", HOME))["spec"].get("nodeName"):
                assert time.monotonic() < until_s
                await asyncio.sleep(0.1)
            await world.admin.phase("stays", "Running", HOME)
            await world.tenant.delete(pod_path("stays", HOME), grace_s=None)
            await world.tenant.pod("as-much-again", 4, HOME)
            said = ""
            while "limit" not in said:
                assert time.monotonic() < until_s, said
                pod = await world.admin.read_pod("as-much-again", HOME)
                assert not pod["spec"].get("nodeName"), "he has twice what his queue allows"
                said = str(pod["status"].get("conditions"))
                await asyncio.sleep(0.1)
            await world.admin.delete(f"{QUEUES}/slow")

    run(check())


def test_the_name_of_another_user_opens_no_queue_and_no_reservation(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    """Nobody compares it with who submits: no webhook, no policy."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            await world.admin.create(QUEUES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue",
                                              "metadata": {"name": "hers"}, "spec": {"users": ["ada"]}})  # fmt: skip
            notes = {"kaiwo.ai/queue": "hers", "kaiwo.ai/user": "ada"}
            await world.tenant.pod("as-ada", 1, HOME, annotations=notes)
            await world.admin.pod("other", 1)
            await until_bound(world.admin, "other")
            said, until_s = "", time.monotonic() + PATIENCE_S
            while "takes work of the user ada only" not in said:
                assert time.monotonic() < until_s, said
                pod = await world.admin.read_pod("as-ada", HOME)
                assert not pod["spec"].get("nodeName")
                said = str(pod["status"].get("conditions"))
                await asyncio.sleep(0.1)
            await world.admin.delete(f"{QUEUES}/hers")

    run(check())


def test_gpus_that_another_scheduler_gave_are_charged_to_the_queue_of_the_namespace(
    plane: Plane, tenant: Path, tmp_path: Path
) -> None:
    """With his own nodeName and any other scheduler: it is counted, and he gets no more than his queue allows."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            spec = {"namespaces": [HOME], "resources": {"gpu": {"quota": 4, "limit": 4}}}
            await world.admin.create(QUEUES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue",
                                              "metadata": {"name": "lab"}, "spec": spec})  # fmt: skip
            await world.tenant.pod("past-the-queue", 4, HOME, schedulerName="nobody", nodeName="node-1")
            await world.tenant.pod("honest", 1, HOME)
            until_s = time.monotonic() + PATIENCE_S
            said = ""
            while "limit" not in said:
                assert time.monotonic() < until_s, said
                pod = await world.admin.read_pod("honest", HOME)
                assert not pod["spec"].get("nodeName"), "he has more than his queue allows"
                said = str(pod["status"].get("conditions"))
                await asyncio.sleep(0.1)
            await world.admin.pod("other", 4)
            await until_bound(world.admin, "other")
            await world.tenant.delete(pod_path("past-the-queue", HOME))
            while not (await world.admin.read_pod("honest", HOME))["spec"].get("nodeName"):
                assert time.monotonic() < until_s
                await asyncio.sleep(0.1)

    run(check())


def test_who_pays_for_a_running_pod_cannot_be_changed(plane: Plane, tenant: Path, tmp_path: Path) -> None:
    """He annotates another queue on his pod, or lets it name a gang that waits in another queue: he pays on."""

    async def check() -> None:
        async with unguarded(plane, tenant, tmp_path) as world:
            for name, quota in (("poor", 4), ("rich", 8)):
                spec = {"resources": {"gpu": {"quota": quota, "limit": quota}}}
                spec |= {"namespaces": [HOME]} if name == "poor" else {"namespaces": ["others"]}
                await world.admin.create(QUEUES, {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoQueue",
                                                  "metadata": {"name": name}, "spec": spec})  # fmt: skip
            known = world.scheduler.loop.state.queue_objects
            while not {"poor", "rich"} <= known.keys():
                await asyncio.sleep(0.05)
            gang = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "1", "kaiwo.ai/queue": "rich"}
            await world.tenant.pod("oldest", 0, HOME, annotations=gang)
            for name in ("first", "second"):
                await world.tenant.pod(name, 2, HOME, annotations={"kaiwo.ai/queue": "poor"})
            for name in ("first", "second"):
                while not (await world.admin.read_pod(name, HOME))["spec"].get("nodeName"):
                    await asyncio.sleep(0.05)
            for name, notes in (("first", {"kaiwo.ai/queue": "rich"}), ("second", gang)):
                await world.tenant.patch(pod_path(name, HOME), {"metadata": {"annotations": notes}})
            await world.tenant.pod("more", 2, HOME, annotations={"kaiwo.ai/queue": "poor"})
            said, until_s = "", time.monotonic() + PATIENCE_S
            while "limit" not in said:
                assert time.monotonic() < until_s, said
                pod = await world.admin.read_pod("more", HOME)
                assert not pod["spec"].get("nodeName"), "he has more than his queue allows"
                said = str(pod["status"].get("conditions"))
                await asyncio.sleep(0.1)
            for name in ("poor", "rich"):
                await world.admin.delete(f"{QUEUES}/{name}")

    run(check())
