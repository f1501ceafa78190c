"""Exclusive placement of JobSet and LeaderWorkerSet: a leader chooses a domain with room for all who follow it.

The pods are those that the real controllers made. A follower is made once its leader has a node, with the domain of
that node in its node selector.
"""

import asyncio
import json
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerObject
from kaiwo.clusters.kubernetes.cache.lost_place_annotations import LOST_PLACES_ANNOTATION
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.clusters.kubernetes.writers.nomination_writer import NominationWriter
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.obstacle import LevelShort
from kaiwo.model.plan import Plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import DECODER, VERSIONS, cached_pod
from tests.clusters.kubernetes.gang_kinds import JOBS, TEMPLATE, Make, create, refer_to
from tests.clusters.kubernetes.kubectl_cluster import Kubectl
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.conftest import find_shared_dir
from tests.controlplane.plane import Plane
from tests.waiting import run

RECORDED = find_shared_dir() / "cases" / "workloads" / "recorded"
CRDS = find_shared_dir() / "fixtures" / "crds"
POOL = "cloud.google.com/gke-nodepool"
Object = dict[str, Any]


def recording(name: str) -> Object:
    path = RECORDED / f"{name}--leaders-bound.json"
    if not path.exists():
        pytest.skip("the recordings are not here")
    found: Object = json.loads(path.read_text())
    return found


class Pools:
    """A cluster with node pools, of which the scheduler is asked, and whose controllers are played as recorded."""

    def __init__(self, **nodes: int) -> None:
        self.cache = ClusterCache()
        self._labels: dict[str, str] = {}
        for pool, count in nodes.items():
            for number in range(count):
                self._put_node(pool, number)
        self.cache.flush(1000)
        self.scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        self.scheduler.state.patch(self.cache.whole_state())
        self._client: Any = SimpleNamespace(may_write=False)
        self.now_s = 1000

    def _put_node(self, pool: str, number: int) -> None:
        name = f"{pool}-{number}"
        labels = {POOL: pool, "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
        labels["cloud.google.com/gke-tpu-topology"] = "4x4"
        amounts = {"cpu": "60m", "memory": "64Gi", "pods": "110", "google.com/tpu": "4"}
        node = {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self._labels[name] = pool
        self.cache.upsert_node(msgspec.convert(node, wire_objects.Node, strict=False))

    def put_owners(self, documents: Iterable[Object]) -> None:
        for document in documents:
            owner = read_owner(document)
            assert not isinstance(owner, str)
            self.cache.gang_index.upsert_owner(OwnerObject(owner))

    def put(self, pod: Object, node: str = "", domain: str = "") -> None:
        """A pod as recorded, but for what was chosen for it here."""
        pod = deepcopy(pod)
        spec = pod["spec"]
        spec["schedulerName"] = SCHEDULER
        spec.pop("nodeName", None)
        if node:
            spec["nodeName"] = node
            pod["metadata"].setdefault("annotations", {})[GRANT_ANNOTATION] = write_grant(())
        if domain:
            spec["nodeSelector"] = spec.get("nodeSelector", {}) | {POOL: domain}
        pod["metadata"]["resourceVersion"] = str(next(VERSIONS))
        pod["metadata"].pop("creationTimestamp", None)
        pod["status"] = {"phase": "Pending"}
        text = msgspec.json.encode(pod)
        self.cache.upsert_pod(DECODER.decode(msgspec.json.decode(text, type=wire_objects.Pod)))

    def fill(self, *nodes: str) -> None:
        """Work that runs there already."""
        for node in nodes:
            container = {"name": "c", "resources": {"requests": {"cpu": "50m", "google.com/tpu": "4"}}}
            self.cache.upsert_pod(cached_pod(f"on-{node}", 0, node, "Running", containers=[container]))

    def cycle(self) -> Plan:
        self.now_s += 1
        self.scheduler.state.patch(self.cache.flush(self.now_s))
        decision = self.scheduler.cycle(self.now_s)
        plan = decision.plan if decision is not None else Plan()
        if decision is not None:
            self.scheduler.state.patch(decision.assumed)
        asyncio.run(self._apply(plan))
        return plan

    async def _apply(self, plan: Plan) -> None:
        NominationWriter(self._client, self.cache, lambda: None, lambda *_, **__: None).apply(plan)

    def domains(self, plan: Plan) -> dict[str, list[str]]:
        """By workload: the pools of what starts."""
        found: dict[str, list[str]] = {}
        for start in plan.starts:
            found.setdefault(start.workload, []).append(self._labels[start.node])
        return found

    def nodes_of(self, plan: Plan) -> dict[str, str]:
        """By pod: the node on which it starts."""
        names = {}
        for start in plan.starts:
            pod = self.cache.slots.find(start.workload, start.pod)
            assert pod is not None
            names[pod.name] = start.node
        return names

    def bind(self, pods: Iterable[Object], plan: Plan) -> dict[str, str]:
        nodes = self.nodes_of(plan)
        for pod in pods:
            if pod["metadata"]["name"] in nodes:
                self.put(pod, nodes[pod["metadata"]["name"]])
        return {pod: self._labels[node] for pod, node in nodes.items()}


JOB = "jobset/tpu-multislice__v6e-jax-workload"
LWS = "lws/sample__lws-exclusive-placement"


def job_of(pod: Object) -> str:
    labels: dict[str, str] = pod["metadata"]["labels"]
    return labels.get("job-name") or labels["leaderworkerset.sigs.k8s.io/group-index"]


def leads(pod: Object) -> bool:
    labels: dict[str, str] = pod["metadata"]["labels"]
    index = labels.get("batch.kubernetes.io/job-completion-index")
    return (index or labels.get("leaderworkerset.sigs.k8s.io/worker-index")) == "0"


def parents_without_followers(found: Object) -> list[Object]:
    """The owners before the leaders are bound."""

    def belongs_to_a_pod(owner: Object) -> bool:
        return any(each["kind"] == "Pod" for each in owner["metadata"].get("ownerReferences", ()))

    return [each for each in found["parents"] if not belongs_to_a_pod(each)]


def follow(pools: Pools, found: Object, chosen: dict[str, str]) -> None:
    """Their controllers make the followers, each with the domain of its leader."""
    domains = {job_of(pod): chosen[pod["metadata"]["name"]] for pod in found["pods"] if leads(pod)}
    pools.put_owners(found["parents"])
    for pod in found["pods"]:
        if not leads(pod):
            pools.put(pod, domain=domains[job_of(pod)])


@pytest.mark.parametrize("name", [JOB, LWS])
def test_leaders_choose_domains_with_room_for_all_who_follow(name: str) -> None:
    """The small pools come first by name, and have room for a leader but not for its Job."""
    found = recording(name)
    leaders = [pod for pod in found["pods"] if leads(pod)]
    pools = Pools(a_small=2, b_small=3, c_large=4, d_large=5, e_large=4)
    pools.put_owners(parents_without_followers(found))
    for pod in leaders:
        pools.put(pod)
    plan = pools.cycle()
    assert len(plan.starts) == len(leaders)
    chosen = pools.bind(leaders, plan)
    assert len(set(chosen.values())) == len(leaders), "each Job has a domain to itself"
    assert all("large" in pool for pool in chosen.values())
    pools.cycle()
    follow(pools, found, chosen)
    starts = {pod: node.rpartition("-")[0] for pod, node in pools.nodes_of(pools.cycle()).items()}
    domains = {job_of(pod): chosen[pod["metadata"]["name"]] for pod in leaders}
    followers = [pod for pod in found["pods"] if not leads(pod)]
    assert starts == {pod["metadata"]["name"]: domains[job_of(pod)] for pod in followers}


def test_nothing_else_takes_the_places_of_followers_before_they_exist() -> None:
    found = recording(JOB)
    leaders = [pod for pod in found["pods"] if leads(pod)]
    pools = Pools(a_pool=4, b_pool=4)
    pools.put_owners(parents_without_followers(found))
    for pod in leaders:
        pools.put(pod)
    container = {"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}
    for number in range(8):
        pools.cache.upsert_pod(cached_pod(f"z-{number}", 0, containers=[container]))
    first = pools.cycle()
    assert set(pools.domains(first)) == {"default/v6e-multislice"}
    chosen = pools.bind(leaders, first)
    for _ in range(3):
        assert not pools.cycle().starts, "smaller work took the place of a follower"
    follow(pools, found, chosen)
    assert len(pools.nodes_of(pools.cycle())) == 6


def test_a_leader_waits_where_no_domain_has_room_for_its_followers() -> None:
    found = recording(JOB)
    pools = Pools(a_pool=4, b_pool=4, c_pool=6)
    pools.fill("a_pool-0", "b_pool-0", "c_pool-1", "c_pool-2", "c_pool-3")
    pools.put_owners(parents_without_followers(found))
    for pod in found["pods"]:
        if leads(pod):
            pools.put(pod)
    plan = pools.cycle()
    assert not plan.starts
    (obstacle,) = {each for wait in plan.waits for each in wait.obstacles}
    assert isinstance(obstacle.facts, LevelShort)
    assert (obstacle.need, obstacle.have, obstacle.facts.level) == (4, 3, POOL)


def test_workers_with_a_smaller_template_do_not_need_the_room_of_their_leader() -> None:
    """Counted as large as their leader, no pool could ever hold them, and nothing would be stopped for the leader."""
    found = recording(LWS)
    owners = deepcopy(parents_without_followers(found))
    (lws,) = [each for each in owners if each["kind"] == "LeaderWorkerSet"]
    template = lws["spec"]["leaderWorkerTemplate"]
    template["leaderTemplate"] = deepcopy(template["workerTemplate"])
    template["workerTemplate"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m"}}
    pools = Pools(a_pool=1, b_pool=2)
    pools.put_owners(owners)
    (leader, *_) = [deepcopy(pod) for pod in found["pods"] if leads(pod)]
    pools.put(leader)
    plan = pools.cycle()  # three workers of 10m find room beside no leader of 50m on a node with 60m
    assert pools.domains(plan) == {"default/leaderworkerset-sample-0": ["b_pool"]}
    kept = pools.cache.published.nominations["default/leaderworkerset-sample-0"].values()
    assert sorted(each.cpu_milli for each in kept) == [10, 10, 10]


def test_the_places_of_followers_are_free_again_when_their_owner_goes() -> None:
    found = recording(JOB)
    leaders = [pod for pod in found["pods"] if leads(pod)]
    pools = Pools(a_pool=4, b_pool=4)
    pools.put_owners(parents_without_followers(found))
    for pod in leaders:
        pools.put(pod)
    pools.bind(leaders, pools.cycle())
    pools.cycle()
    assert len(pools.cache.published.nominations["default/v6e-multislice"]) == 6
    for pod in leaders:
        pools.cache.delete_pod(pools.cache.pods["default", pod["metadata"]["name"]])
    pools.cycle()
    assert pools.cache.published.nominations == {}
    assert not pools.scheduler.state.nominations


def test_the_next_leader_of_kaiwo_keeps_the_places_of_followers() -> None:
    found = recording(JOB)
    leaders = [pod for pod in found["pods"] if leads(pod)]
    pools = Pools(a_pool=4, b_pool=4)
    pools.put_owners(parents_without_followers(found))
    for pod in leaders:
        pools.put(pod)
    nodes = pools.nodes_of(first := pools.cycle())
    pools.bind(leaders, first)
    pools.cycle()
    name = "default/v6e-multislice"
    [written] = [
        each for each in pools.cache.lost_places.pods_to_write(name, pools.cache.slots.pods(name)) if each.text
    ]
    next_one = Pools(a_pool=4, b_pool=4)
    next_one.put_owners(parents_without_followers(found))
    for pod in deepcopy(leaders):
        if pod["metadata"]["name"] == written.pod.name:
            pod["metadata"]["annotations"][LOST_PLACES_ANNOTATION] = written.text
        next_one.put(pod, nodes[pod["metadata"]["name"]])
    next_one.cycle()
    kept = [pools.cache.published.nominations[name], next_one.cache.published.nominations[name]]
    before, after = (sorted(each.node for each in places.values()) for places in kept)
    assert before == after
    assert len(kept[1]) == 6
    assert all(each.is_awaited for each in kept[1].values())


def sub_group_pod(number: int, size: int, sub_size: int) -> Object:
    """As the webhook of LeaderWorkerSet makes it: the leader belongs to the first sub-group."""
    prefix = "leaderworkerset.sigs.k8s.io/"
    sub = str(number // sub_size)
    key, hashed = f"{prefix}subgroup-key", f"hash-{sub}"
    labels = {f"{prefix}name": "serve", f"{prefix}group-index": "0", f"{prefix}worker-index": str(number)}
    labels |= {f"{prefix}subgroup-index": sub, key: hashed}
    notes = {f"{prefix}size": str(size), f"{prefix}subgroup-size": str(sub_size)}
    notes[f"{prefix}subgroup-exclusive-topology"] = POOL
    near = {"matchExpressions": [{"key": key, "operator": "In", "values": [hashed]}]}
    apart = {
        "matchExpressions": [{"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [hashed]}]
    }
    affinity = {
        kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": each, "topologyKey": POOL}]}
        for kind, each in (("podAffinity", near), ("podAntiAffinity", apart))
    }
    own = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "serve", "uid": "sts", "controller": True}
    if number:
        own |= {"name": "serve-0", "uid": "sts-0"}
    name = f"serve-0-{number}" if number else "serve-0"
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels, "annotations": notes}
    container = {"name": "c", "resources": {"requests": {"google.com/tpu": "4"}}}
    return {
        "metadata": metadata | {"ownerReferences": [own]},
        "spec": {"containers": [container], "affinity": affinity},
    }


def test_each_exclusive_sub_group_has_a_domain_with_room_for_all_of_it() -> None:
    pools = Pools(a_small=1, b_small=2, c_large=3, d_small=2, e_large=3)
    spec = {"leaderWorkerTemplate": {"size": 6}, "startupPolicy": "LeaderCreated"}
    metadata = {"name": "serve", "namespace": "default", "uid": "lws"}
    pools.put_owners(
        [{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}]
    )
    for number in range(6):
        pools.put(sub_group_pod(number, 6, 3))
    nodes = pools.nodes_of(pools.cycle())
    assert len(nodes) == 6
    domains = [
        {nodes[f"serve-0-{at}" if at else "serve-0"].rpartition("-")[0] for at in part}
        for part in ((0, 1, 2), (3, 4, 5))
    ]
    assert sorted(domains, key=min) == [{"c_large"}, {"e_large"}]


async def job_of_three(kubectl: Kubectl, level: str) -> list[Make]:
    """A JobSet with one Job: its leader, and the followers that its controller makes later."""
    prefix, asked = "jobset.sigs.k8s.io/", {"alpha.jobset.sigs.k8s.io/exclusive-topology": level}
    inner = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": TEMPLATE}
    spec = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": inner}}]}
    above = await create(kubectl, "jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", spec, annotations=asked)
    labels = {f"{prefix}jobset-name": "g", f"{prefix}replicatedjob-name": "w", f"{prefix}job-key": "k"}
    labels[f"{prefix}jobset-uid"] = above["ownerReferences"][0]["uid"]
    body = {"metadata": {"name": "g-w-0", "labels": labels, "annotations": asked, **above}, "spec": inner}
    own = refer_to(await kubectl.create(JOBS, body), "batch/v1", "Job")
    near = {"labelSelector": {"matchLabels": {f"{prefix}job-key": "k"}}, "topologyKey": level}

    def made(index: int, **more: Any) -> Make:
        notes = asked | {"batch.kubernetes.io/job-completion-index": str(index)}
        return lambda: kubectl.pod(f"g-w-0-{index}", gpus=8, labels=labels, annotations=notes, **own, **more)

    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    return [made(0, affinity=affinity), *(made(at, nodeSelector={level: "b"}) for at in (1, 2))]


def test_on_the_server_followers_find_the_places_that_were_kept(alpha_plane: Plane, tmp_path: Path) -> None:
    definition = CRDS / "jobset.x-k8s.io_jobsets.yaml"
    if not definition.exists():
        pytest.skip("the definition of JobSet is not here")
    alpha_plane.kubectl("apply", "--server-side", f"--filename={definition}")
    alpha_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"--filename={definition}")
    rack = "example.com/rack"

    async def test() -> None:
        async with scheduled(alpha_plane, tmp_path) as kubectl:
            for name in ("a1", "a2", "b1", "b2", "b3"):
                await kubectl.node(name, labels={rack: name[0]})
            leader, *followers = await job_of_three(kubectl, rack)
            await leader()
            bound = await until_bound(kubectl, "g-w-0-0")
            assert bound["spec"]["nodeName"].startswith("b"), "rack a has room for two of three"
            for number in range(3):
                await kubectl.pod(f"other-{number}", gpus=8)
            await until_said(kubectl, "other-2", "GPU")
            others = [await until_bound(kubectl, f"other-{number}") for number in range(2)]
            assert {pod["spec"]["nodeName"] for pod in others} == {"a1", "a2"}
            written = (await kubectl.read_pod("g-w-0-0"))["metadata"]["annotations"]
            assert LOST_PLACES_ANNOTATION in written, "the next leader of Kaiwo would not know"
            for make in followers:
                await make()
            nodes = {(await until_bound(kubectl, f"g-w-0-{at}"))["spec"]["nodeName"] for at in range(3)}
            assert nodes == {"b1", "b2", "b3"}

    run(test())
