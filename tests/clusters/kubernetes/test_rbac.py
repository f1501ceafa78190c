"""The rights of the chart's service accounts, on a real API server: enough for what is done, and not a verb more."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import yaml

from kaiwo.app.options import SchedulerOptions
from kaiwo.app.scheduler import scheduling
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION
from kaiwo.clusters.kubernetes.cache.node_cache import OUT_OF_SERVICE
from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.connection import ApiRequest
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import PARTITIONING_PLANS, QUEUES, TOPOLOGIES
from kaiwo.clusters.kubernetes.volumes.claim_matching import SELECTED_NODE
from kaiwo.clusters.kubernetes.watch.operator_kinds import OWNERS
from kaiwo.clusters.protocol import PodUse
from kaiwo.devices.agent.kubelet.bound_pods import ApiPodLister
from kaiwo.devices.agent.kubelet.kubernetes_api import KubernetesApi
from kaiwo.devices.agent.kubelet.node_annotation import DEVICES_ANNOTATION, MERGE, NodeAnnotationWriter
from kaiwo.model.errors import ClusterError
from kaiwo.model.plan import Eviction, EvictionCause, Plan
from tests.clusters.kubernetes.chart import ALL_ON, CHART, account_kubeconfig, helm, one, rendered, uninstall
from tests.clusters.kubernetes.installed_webhooks import point_at_localhost, queue
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl, pod_path
from tests.clusters.kubernetes.test_volumes import CLAIMS, CLASSES, VOLUMES, claim, storage_class, using, volume
from tests.controlplane.plane import MissingError, Plane, find_programs, free_ports
from tests.waiting import PATIENCE_S, run, until

NAMESPACE = "t-rbac"
(WEBHOOKS,) = free_ports(1)
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kaiwo-scheduler"
RESERVATIONS = "/apis/kaiwo.ai/v1alpha2/kaiworeservations"
RESERVATION: Json = {"apiVersion": "kaiwo.ai/v1alpha2", "kind": "KaiwoReservation"}
TOPOLOGY: Json = {
    "apiVersion": "kaiwo.ai/v1alpha2",
    "kind": "KaiwoTopology",
    "metadata": {"name": "rbac"},
    "spec": {"levels": [{"name": "leaf", "nodeLabel": "example.com/leaf"}]},
}
PLAN: Json = {
    "apiVersion": "infrastructure.silogen.ai/v1alpha1",
    "kind": "PartitioningPlan",
    "metadata": {"name": "rbac"},
    "spec": {"rules": [{"selector": {"matchLabels": {"no": "node"}}, "profile": {"dcmProfileName": "cpx-nps1"}}]},
}
Right = tuple[str, str, str]  # group, resource, verb


class Accounts(NamedTuple):
    """Kubeconfigs of the two service accounts."""

    scheduler: Path
    agent: Path


@pytest.fixture(scope="module")
def accounts(plane: Plane) -> Iterator[Accounts]:
    """The chart as Helm installs it."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))
    where = f"--namespace={NAMESPACE}"
    settings = (*ALL_ON, f"--set=webhooks.port={WEBHOOKS}")
    helm("install", "kaiwo", str(CHART), where, "--create-namespace", *settings, plane=plane)
    point_at_localhost(plane, NAMESPACE)  # where nobody answers, work passes at once
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/kaiwoqueues.kaiwo.ai")
    yield Accounts(*(account_kubeconfig(plane, NAMESPACE, name) for name in ("kaiwo", "kaiwo-agent")))
    uninstall(plane, NAMESPACE)


def test_the_deployments_own_command_schedules_with_the_rights_of_its_account(
    plane: Plane, accounts: Accounts, tmp_path: Path
) -> None:
    async def test() -> None:
        async with _cluster(plane) as kubectl, _replica(accounts.scheduler, tmp_path / "first") as first:
            await kubectl.pod("fits", gpus=2)
            await kubectl.pod("waits", gpus=9)
            pod = await _until_bound(kubectl, "fits")
            assert len(msgspec.json.decode(pod["metadata"]["annotations"][GRANT_ANNOTATION])) == 2
            await _until_event(kubectl, "fits", "Scheduled")
            await _until_event(kubectl, "waits", "FailedScheduling")
            assert (await _until_condition(kubectl, "waits"))["status"] == "False"
            await _look_at_metrics(first, (tmp_path / "first" / "token").read_text().strip())
            # A standby is ready too: the next version of the Deployment must be before an old leader goes.
            async with _replica(accounts.scheduler, tmp_path / "second"):
                pass
        for name in ("first", "second"):
            assert "forbidden" not in (tmp_path / name / "stderr.log").read_text().lower()

    run(test())


def test_the_role_has_exactly_the_rights_that_are_used(
    plane: Plane, accounts: Accounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[Right] = set()
    _record(monkeypatch, accounts.scheduler, used)
    monkeypatch.setattr("kaiwo.runtime.kubernetes.publish_queue_status.EVERY_S", 0.1)

    async def test() -> None:
        async with _cluster(plane) as kubectl:
            await kubectl.delete(LEASE)
            # As after the installation: certificates are made and published.
            await kubectl.patch(f"/api/v1/namespaces/{NAMESPACE}/secrets/kaiwo-webhooks", {"data": None})
            options = SchedulerOptions(
                str(tmp_path),
                port=0,
                kubeconfig=str(accounts.scheduler),
                lease_namespace=NAMESPACE,
                webhooks="kaiwo-webhooks",
                webhook_port=WEBHOOKS,
                grant_keys="kaiwo-grants",
                agents="kaiwo-agents",
                agents_port=0,
                agent_account=f"{NAMESPACE}:kaiwo-agent",
                kubernetes_tokens=True,
            )
            async with scheduling(options) as kaiwo:
                await _look_like_an_agent(kaiwo.url)
                person = plane.kubectl("create", "token", "kaiwo-agent", f"--namespace={NAMESPACE}").strip()
                await _look_like_a_person(kaiwo.url, person)
                await kubectl.pod("goes")
                await kubectl.pod("stays", gpus=9)
                await _until_bound(kubectl, "goes")
                await _until_event(kubectl, "stays", "FailedScheduling")
                await kaiwo.cluster.abilities.nodes.cordon("node-1", True)
                assert (await kubectl.get("/api/v1/nodes/node-1"))["spec"]["unschedulable"]
                await _resize(kaiwo.cluster, "default/goes")
                gone = Eviction("default/goes", "main-0", EvictionCause.PREEMPT, "default/stays")
                assert await kaiwo.cluster.apply(Plan(evictions=(gone,))) == ("default/goes/main-0",)
                await _until_event(kubectl, "goes", "Evicted")
                await _until_lost_pod_deleted(kubectl)
                await kubectl.create(RESERVATIONS, {**RESERVATION, "metadata": {"name": "rbac"}, "spec": {"gpus": 1}})
                await _until_status(kubectl, f"{RESERVATIONS}/rbac")
                await kubectl.delete(f"{RESERVATIONS}/rbac")
                await _until_taken(kubectl, QUEUES, queue("rbac"))
                await _until_status(kubectl, f"{QUEUES}/rbac")
                await kubectl.delete(f"{QUEUES}/rbac")
                await kubectl.create(TOPOLOGIES, TOPOLOGY)
                await _until_status(kubectl, f"{TOPOLOGIES}/rbac")
                await kubectl.delete(f"{TOPOLOGIES}/rbac")
                await kubectl.create(PARTITIONING_PLANS, PLAN)
                await _until_status(kubectl, f"{PARTITIONING_PLANS}/rbac")
                await kubectl.delete(f"{PARTITIONING_PLANS}/rbac")
                await _until_volumes_chosen(kubectl)
                assert all(mirror.version for mirror in kaiwo.cluster.watch.informers)

    run(test())
    kinds = {*OWNERS, ("kueue.x-k8s.io", "Workload")}
    above = {(group, kind.lower() + "s", verb) for group, kind in kinds for verb in ("list", "watch")}
    granted = _granted("ClusterRole", "kaiwo-system:kaiwo") | _granted("Role", "kaiwo")
    granted |= _granted("ClusterRole", "kaiwo-system:kaiwo-webhooks") | _granted("Role", "kaiwo-webhooks")
    granted |= _granted("Role", "kaiwo-grants") | _granted("Role", "kaiwo-node-leases")
    assert above <= granted
    # Looked up when a controller makes a ReplicaSet or a Job.
    above |= {("apps", "deployments", "list"), ("batch", "cronjobs", "list")}
    used.discard(("authentication.k8s.io", "selfsubjectreviews", "create"))  # every account may ask who it is
    # A pod is read by its name only after a Binding that broke off, of which there was none here.
    assert granted - above == (used - above) | {("", "pods", "get")}


async def _resize(cluster: KubernetesCluster, workload: str) -> None:
    assert cluster.abilities.uses is not None
    assert cluster.abilities.resizer is not None
    await cluster.abilities.uses.measure()
    await cluster.abilities.resizer.resize(workload, "main-0", PodUse(500, None), "it uses less")


async def _until_lost_pod_deleted(kubectl: Kubectl) -> None:
    """A node fails and is fenced: the pod on it, which no kubelet stops, is deleted."""
    await kubectl.node("node-lost")
    await kubectl.pod("lost", nodeSelector={"kubernetes.io/hostname": "node-lost"})
    await _until_bound(kubectl, "lost")
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    off = {"type": "Ready", "status": "False", "reason": "off", "message": "it is off"}
    await kubectl.patch("/api/v1/nodes/node-lost/status", {"status": {"conditions": [off]}})
    await kubectl.patch("/api/v1/nodes/node-lost", {"spec": {"taints": [taint]}})
    with contextlib.suppress(ApiError):
        for _ in range(int(PATIENCE_S / 0.1)):
            await kubectl.read_pod("lost")
            await asyncio.sleep(0.1)
        raise AssertionError("the lost pod is still there")
    await kubectl.delete("/api/v1/nodes/node-lost")


async def _until_volumes_chosen(kubectl: Kubectl) -> None:
    """A pod with a claim for a volume that is there, and one for a volume that must be made."""
    documents = (
        (CLASSES, storage_class("late")),
        (CLASSES, storage_class("made", "example.com/disks")),
        (VOLUMES, volume("local", "node-1")),
        (CLAIMS, claim("data")),
        (CLAIMS, claim("more", kind="made")),
    )
    for path, document in documents:
        await kubectl.create(path, {key: value for key, value in document.items() if key != "status"})
    await kubectl.patch(f"{VOLUMES}/local/status", {"status": {"phase": "Available"}})
    await kubectl.patch("/api/v1/nodes/node-1", {"spec": {"unschedulable": None}})
    await kubectl.pod("stores", volumes=using("data", "more"))
    async with asyncio.timeout(PATIENCE_S):
        while SELECTED_NODE not in (await kubectl.get(f"{CLAIMS}/more"))["metadata"].get("annotations", {}):
            await asyncio.sleep(0.05)
        while "claimRef" not in (await kubectl.get(f"{VOLUMES}/local"))["spec"]:
            await asyncio.sleep(0.05)
    await kubectl.delete(pod_path("stores"))
    for path, document in reversed(documents):
        where = f"{path}/{document['metadata']['name']}"
        await kubectl.patch(where, {"metadata": {"finalizers": None}})
        await kubectl.delete(where)


async def _look_like_a_person(url: str, token: str) -> None:
    """One without any right: it was asked who they are, and what they may do."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/api/v1/status") as answer:
        assert answer.status == 403, await answer.text()


async def _look_like_an_agent(url: str) -> None:
    headers = {"Authorization": "Bearer of-nobody"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{url}/api/agents/node-1/reports") as answer,
    ):
        assert answer.status == 401


async def _until_taken(kubectl: Kubectl, path: str, document: Json) -> None:
    """Until the API server has heard whom to ask about it."""
    for _ in range(100):
        try:
            await kubectl.create(path, document)
            return
        except ApiError as error:
            if "failed calling webhook" not in str(error):
                raise
            await asyncio.sleep(0.1)
    raise AssertionError("the webhooks are not trusted after 10 s")


async def _until_status(kubectl: Kubectl, path: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while "status" not in await kubectl.get(path):
            await asyncio.sleep(0.05)


FORBIDDEN = [
    ("DELETE", "/api/v1/nodes/node-1"),
    ("GET", "/api/v1/secrets"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/kaiwo-token"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ("GET", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"),
    ("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/another"),
    ("GET", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/namespaces/default/pods"),
    ("PATCH", pod_path("some")),
    ("POST", "/api/v1/namespaces/default/pods"),
    ("POST", f"{pod_path('some')}/exec"),
    ("PATCH", "/api/v1/nodes/node-1/status"),
    ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/another"),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kaiwo-scheduler"),
    ("PATCH", "/apis/kaiwo.ai/v1alpha2/kaiwoqueues/default"),
    ("PATCH", "/apis/kaiwo.ai/v1alpha2/kaiwotopologies/some"),
    ("DELETE", "/apis/batch/v1/namespaces/default/jobs/some"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/kaiwo/token"),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
]


def test_whatever_else_is_tried_is_refused(plane: Plane, accounts: Accounts) -> None:
    async def test() -> None:
        async with _cluster(plane):
            for kubeconfig in accounts:
                client = Client(read_kubeconfig(kubeconfig))
                try:
                    for method, path in FORBIDDEN:
                        with pytest.raises(ApiError, match="forbidden") as refused:
                            await client.write(method, path, None if method == "GET" else b"{}", tries=1)
                        assert refused.value.code == 403, path
                finally:
                    await client.close()

    run(test())


def test_the_agent_reads_pods_and_writes_one_annotation_on_its_own_node(
    plane: Plane, accounts: Accounts, tmp_path: Path
) -> None:
    async def test() -> None:
        async with _cluster(plane) as kubectl:
            await kubectl.node("node-2")
            await kubectl.pod("agent", namespace=NAMESPACE, nodeName="node-1", serviceAccountName="kaiwo-agent")
            api = KubernetesApi(plane.server, _account_of_pod(plane, "agent", tmp_path))
            await kubectl.pod("here", nodeName="node-1")
            found = await asyncio.to_thread(ApiPodLister(api, "node-1").bound, True)
            assert sorted(pod.name for pod in found) == ["agent", "here"]
            await _until_guarded(api)
            said: list[str] = []
            announcer = NodeAnnotationWriter(api, "node-1", lambda _, text: said.append(text))
            announcer.write(())
            await until(lambda: said, "the announcement")
            await asyncio.to_thread(announcer.close)
            assert said == [""]
            assert DEVICES_ANNOTATION in (await kubectl.get("/api/v1/nodes/node-1"))["metadata"]["annotations"]
            for body in (b'{"spec": {"unschedulable": true}}', b'{"metadata": {"labels": {"a": "b"}}}', OTHER_NOTE):
                with pytest.raises(ClusterError, match="422"):
                    await asyncio.to_thread(api.call, "PATCH", "/api/v1/nodes/node-1", body, MERGE)
            with pytest.raises(ClusterError, match="403"):
                await asyncio.to_thread(api.call, "GET", "/api/v1/nodes/node-1")

    run(test())
    rights = {("", "pods", "list"), ("", "nodes", "patch"), ("", "events", "create")}
    assert _granted("ClusterRole", "kaiwo-system:kaiwo-agent") == rights
    assert _granted("Role", "kaiwo-agent") == {("", "configmaps", "get")}  # the public keys, by their name


OTHER_NOTE = b'{"metadata": {"annotations": {"other": "note"}}}'


def _account_of_pod(plane: Plane, pod: str, folder: Path) -> str:
    """The files that a kubelet gives to this pod: the token knows its node."""
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
    token = plane.kubectl("create", "token", "kaiwo-agent", f"--namespace={NAMESPACE}", *bound)
    (folder / "token").write_text(token)
    shutil.copy(plane.folder / "ca.crt", folder)
    return str(folder)


async def _until_guarded(api: KubernetesApi) -> None:
    """The API server takes a moment to learn of a policy. An empty patch changes nothing until then."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await asyncio.to_thread(api.call, "PATCH", "/api/v1/nodes/node-2", b"{}", MERGE)
            except ClusterError:
                break
            await asyncio.sleep(0.1)
    with pytest.raises(ClusterError, match="422"):
        await asyncio.to_thread(api.call, "PATCH", "/api/v1/nodes/node-2", b"{}", MERGE)


@asynccontextmanager
async def _cluster(plane: Plane) -> AsyncIterator[Kubectl]:
    client = Client(read_kubeconfig(plane.kubeconfig))
    kubectl = Kubectl(client)
    try:
        await kubectl.clean()
        await kubectl.node("node-1")
        yield kubectl
        await kubectl.clean()
    finally:
        await client.close()


async def _until_bound(kubectl: Kubectl, name: str) -> Json:
    async with asyncio.timeout(PATIENCE_S):
        while not (pod := await kubectl.read_pod(name))["spec"].get("nodeName"):
            await asyncio.sleep(0.05)
    return pod


async def _until_condition(kubectl: Kubectl, name: str) -> Json:
    """It is written beside the Event, and either may come first."""
    for _ in range(400):
        if condition := await kubectl.condition(name):
            return condition
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} has no condition after 20 s")


async def _until_event(kubectl: Kubectl, name: str, reason: str) -> None:
    query = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name},reason={reason}"
    async with asyncio.timeout(PATIENCE_S):
        while not (await kubectl.get(query))["items"]:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _replica(kubeconfig: Path, home: Path) -> AsyncIterator[int]:
    """The Deployment's own command, on a port that is free here, when its probes say that it is ready."""
    port, webhooks = free_ports(2)
    options = (f"--set=api.port={port},webhooks.port={webhooks}", f"--namespace={NAMESPACE}")
    spec = one(rendered(*options), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command = [sys.executable, "-m", "kaiwo.cli.main", *container["command"][1:], *container["args"]]
    home.mkdir()
    home.chmod(0o2777)  # as an emptyDir is
    with (home / "stderr.log").open("wb") as log:
        environment = os.environ | {"KAIWO_HOME": str(home), "KUBECONFIG": str(kubeconfig)}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            await _until_answered(f"http://127.0.0.1:{port}{container[probe]['httpGet']['path']}", process)
        yield port
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


async def _until_answered(url: str, process: "subprocess.Popen[bytes]") -> None:
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while process.poll() is None:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.05)
    raise AssertionError(f"the scheduler ended with {process.returncode}")


async def _look_at_metrics(port: int, token: str) -> None:
    """As Prometheus does, by address."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/metrics") as answer:
            assert answer.status == 401
        async with session.get("/metrics", headers={"Authorization": f"Bearer {token}"}) as answer:
            assert answer.status == 200
            assert "kaiwo_" in await answer.text()


def _granted(kind: str, name: str) -> set[Right]:
    rules = one(rendered(*ALL_ON), kind, name)["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _record(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path, used: set[Right]) -> None:
    """Every request of this account passes here, with the server's answer still to come."""
    send = Client._answer
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]

    @asynccontextmanager
    async def recorded(self: Client, call: ApiRequest, timeout: Any) -> AsyncIterator[Any]:
        if (await self.access.source.get()).token == token and (right := _right(call)):
            used.add(right)
        async with send(self, call, timeout) as answer:
            yield answer

    monkeypatch.setattr(Client, "_answer", recorded)


PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v\w+/(?:namespaces/[^/]+/)?(?P<resource>[a-z]+)(?P<one>/[^/]+)?(?P<sub>/\w+)?"
)


def _right(call: ApiRequest) -> Right | None:
    """What the API server asks its rules for; None for discovery."""
    found = PATH.fullmatch(call.path)
    if found is None:
        return None
    read = "watch" if "watch" in (call.params or {}) else "get" if found["one"] else "list"
    verb = {"GET": read, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}[call.method]
    return found["group"] or "", found["resource"] + (found["sub"] or ""), verb
