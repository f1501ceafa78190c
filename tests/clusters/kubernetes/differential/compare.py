"""Put a world on a real API server, ask both schedulers about each pod, and compare.

In:    a control plane, seeds.   Out: one Case a pod, with what each of them says.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.client import ApiError, Client
from kaiwo.clusters.kubernetes.client.connection import STRATEGIC
from kaiwo.clusters.kubernetes.client.kubeconfig import read_kubeconfig
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.model.workload import role_of
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.differential.extender import CONFIG, Shown, listening
from tests.clusters.kubernetes.differential.rules import CALM, RUNTIME
from tests.clusters.kubernetes.differential.twins import BY_NAME, EVERYWHERE
from tests.clusters.kubernetes.differential.world import Maker, World
from tests.clusters.kubernetes.kubectl_cluster import Json, Kubectl
from tests.controlplane.plane import Plane
from tests.feasible_nodes import feasible_nodes
from tests.waiting import PATIENCE_S

AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Case:
    """One pod, and the nodes that each scheduler would take."""

    name: str
    rules: tuple[str, ...]
    nodes: int
    theirs: frozenset[str]
    ours: frozenset[str]
    pod: Json = field(repr=False)
    # What they must say of a pod whose namespace selectors only exclude: see `twins`.
    due_theirs: frozenset[str] | None = None
    due_ours: frozenset[str] | None = None

    @property
    def agrees(self) -> bool:
        if self.due_theirs is None:
            return self.theirs == self.ours
        return (self.theirs, self.ours) == (self.due_theirs, self.due_ours)

    def difference(self) -> str:
        only_theirs, only_ours = sorted(self.theirs - self.ours), sorted(self.ours - self.theirs)
        spec = {key: value for key, value in self.pod["spec"].items() if key not in DULL}
        return (
            f"{self.name} ({', '.join(self.rules)}): only kube-scheduler takes {only_theirs}, only Kaiwo {only_ours}\n"
            f"  {self.pod['metadata']['namespace']} {self.pod['metadata'].get('labels')}\n  {spec}"
        )


DULL = ("dnsPolicy", "restartPolicy", "securityContext", "terminationGracePeriodSeconds", "enableServiceLinks")


async def compare(plane: Plane, seeds: Iterable[int], pods: int) -> list[Case]:
    """So many pods in each world."""
    client = Client(read_kubeconfig(plane.kubeconfig))
    kubectl = Kubectl(client)
    cases: list[Case] = []
    try:
        await kubectl.clean()
        await _make_classes(kubectl)
        for seed in seeds:
            cases += await _one_world(plane, kubectl, seed, pods)
    finally:
        await client.close()
    return cases


async def _one_world(plane: Plane, kubectl: Kubectl, seed: int, count: int) -> list[Case]:
    maker = Maker(seed)
    world = maker.world()
    await _put(kubectl, world)
    pods = maker.pods(count)
    await _all(kubectl.create(_pods(pod), pod) for pod in pods)
    try:
        theirs = await _ask_kube_scheduler(plane, kubectl, maker.spaces)
        ours = await _ask_ours(plane)
        stored = [pod for space in maker.spaces for pod in (await kubectl.get(_pods_in(space)))["items"]]
    finally:
        await _take_away(kubectl, maker)
    said: dict[str, Case] = {}
    for pod in stored:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if name.startswith("case-"):
            rules = tuple(pod["metadata"]["annotations"]["rules"].split(", "))
            said[name] = Case(
                f"{maker.tag}/{name}", rules, len(world.nodes), frozenset(theirs[uid]), frozenset(ours[uid]), pod
            )
    return [_with_dues(said[name], said) for name in sorted(said)]


def _with_dues(case: Case, said: dict[str, Case]) -> Case:
    name = case.pod["metadata"]["name"]
    everywhere, by_name = said.get(name + EVERYWHERE), said.get(name + BY_NAME)
    if everywhere is None or by_name is None:
        return case
    return replace(case, due_theirs=everywhere.ours, due_ours=by_name.theirs)


async def _ask_kube_scheduler(plane: Plane, kubectl: Kubectl, spaces: list[str]) -> dict[str, tuple[str, ...]]:
    """It is started when all is there, so that it decides on nothing half seen."""
    with listening() as shown:
        config = plane.folder / "differential.yaml"
        config.write_text(CONFIG.format(kubeconfig=plane.kubeconfig, port=shown.port))
        plane.run("kube-scheduler", f"--config={config}", "--secure-port=0")
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found = await _verdicts(kubectl, spaces, shown)
                    if found is not None:
                        return found
                    assert plane.processes["kube-scheduler"].poll() is None, plane.tail("kube-scheduler")
                    await asyncio.sleep(0.1)
        finally:
            plane.kill("kube-scheduler")


async def _verdicts(kubectl: Kubectl, spaces: list[str], shown: Shown) -> dict[str, tuple[str, ...]] | None:
    """None: some have not been tried yet. Who was refused by its own filters never reaches the window."""
    found: dict[str, tuple[str, ...]] = {}
    for space in spaces:
        for pod in (await kubectl.get(_pods_in(space)))["items"]:
            if not pod["metadata"]["name"].startswith("case-"):
                continue
            conditions = {item["type"]: item for item in pod["status"].get("conditions", ())}
            told = conditions.get("PodScheduled")
            if told is None:
                return None
            assert told["reason"] in ("Unschedulable", "SchedulingGated"), f"{pod['metadata']['name']}: {told}"
            found[pod["metadata"]["uid"]] = shown.get(pod["metadata"]["uid"], ())
    return found


async def _ask_ours(plane: Plane) -> dict[str, tuple[str, ...]]:
    """The shipped adapter's picture, and the feasibility that every placement goes through."""
    cluster = KubernetesCluster(read_kubeconfig(plane.kubeconfig))
    try:
        await cluster.start()
        state = ClusterState()
        async for batch in cluster.events():
            state.patch(batch)
            break
        snapshot = state.snapshot(now_s=cluster.now_s())
        found: dict[str, tuple[str, ...]] = {}
        for pod in cluster.cache.pods.values():
            workload = state.workloads.get(cluster.cache.workload_of(pod.key) or "")
            if workload is None or pod.node:
                found[pod.uid] = ()
            else:
                found[pod.uid] = feasible_nodes(snapshot, role_of(workload, "main-0").request)
        return found
    finally:
        await cluster.close()


async def _put(kubectl: Kubectl, world: World) -> None:
    await _all(kubectl.create("/api/v1/namespaces", space) for space in world.namespaces)
    await _all(_put_node(kubectl, node) for node in world.nodes)
    await _all(kubectl.create("/api/v1/persistentvolumes", volume) for volume in world.volumes)
    await _all(_put_claim(kubectl, claim) for claim in world.claims)
    await _all(_put_pod(kubectl, pod, world) for pod in world.there)


async def _put_node(kubectl: Kubectl, node: Json) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    await kubectl.create("/api/v1/nodes", {"metadata": node["metadata"]})
    await kubectl.patch(f"{path}/status", {"status": node["status"]}, STRATEGIC)
    await kubectl.patch(path, {"spec": node["spec"]})  # with the taints that it shall have, and no others


async def _put_claim(kubectl: Kubectl, claim: Json) -> None:
    path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims"
    await kubectl.create(path, claim)
    await kubectl.patch(f"{path}/{claim['metadata']['name']}/status", {"status": claim["status"]})


async def _put_pod(kubectl: Kubectl, pod: Json, world: World) -> None:
    name = pod["metadata"]["name"]
    await kubectl.create(_pods(pod), pod)
    path = f"{_pods(pod)}/{name}"
    if name in world.leaving:
        await kubectl.delete(path, grace_s=None)
    if name in world.resized:
        await kubectl.patch(f"{path}/status", {"status": world.resized[name]})
    if name in world.ended:
        await kubectl.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})


async def _make_classes(kubectl: Kubectl) -> None:
    amounts = {"cpu": RUNTIME["cpu"], "memory": RUNTIME["memory"]}
    runtime: Json = {"metadata": {"name": RUNTIME["name"]}, "handler": "heavy", "overhead": {"podFixed": amounts}}
    calm: Json = {"metadata": {"name": CALM}, "value": 0, "preemptionPolicy": "Never"}
    classes = {"node.k8s.io/v1/runtimeclasses": runtime, "scheduling.k8s.io/v1/priorityclasses": calm}
    for path, body in classes.items():
        try:
            await kubectl.create(f"/apis/{path}", body)
        except ApiError as error:
            if error.code != 409:  # an earlier run made it
                raise


async def _take_away(kubectl: Kubectl, maker: Maker) -> None:
    options = msgspec.json.encode({"gracePeriodSeconds": 0})
    for space in maker.spaces:
        await kubectl.client.write("DELETE", _pods_in(space), options)
    await kubectl.client.write("DELETE", "/api/v1/nodes", options)


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def take_turn(each: Awaitable[Any]) -> None:
        async with turns:
            await each

    await asyncio.gather(*(take_turn(each) for each in work))


def _pods(pod: Json) -> str:
    return _pods_in(pod["metadata"]["namespace"])


def _pods_in(space: str) -> str:
    return f"/api/v1/namespaces/{space}/pods"
