"""The place of a gang's lost pod is kept while its controller may still replace the pod, and no longer."""

from types import SimpleNamespace
from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerObject
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.clusters.kubernetes.writers.binder import Binder
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.plan import Nomination, Start
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.workload import Phase
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod, wire_node
from tests.clusters.kubernetes.kubectl_cluster import whole
from tests.clusters.kubernetes.test_previous_runs import LEAVING, PASSED, put_owners
from tests.conformance.gangs import objects as o

NAME = "default/train"
WHOLE_NODE = {GRANT_ANNOTATION: write_grant(whole(*range(8)))}
NODES = 4


def put(cache: ClusterCache, pod: o.Object, node: str = "", now_s: int = 1000, **more: Any) -> None:
    meta = pod["metadata"]
    said = {key: meta[key] for key in PASSED if key in meta}
    said["annotations"] = said.get("annotations", {}) | (WHOLE_NODE if node else {})
    cache.upsert_pod(cached_pod(meta["name"], 8, node, **(said | more)))
    cache.flush(now_s)


def running_job(**spec: Any) -> tuple[ClusterCache, o.Object, list[o.Object]]:
    """A Job whose pods fill all the nodes."""
    cache = cache_with_nodes(NODES)
    job = o.make_job("train", parallelism=NODES, completions=NODES, **spec)
    put_owners(cache, job)
    pods = o.make_job_pods(job, NODES)
    for number, pod in enumerate(pods, start=1):
        put(cache, pod, f"node-{number}", phase="Running")
    return cache, job, pods


def delete(cache: ClusterCache, pod: o.Object, now_s: int = 1000) -> None:
    cache.delete_pod(cache.pods["default", pod["metadata"]["name"]])
    cache.flush(now_s)


def kept(cache: ClusterCache) -> dict[str, Nomination]:
    return cache.published.nominations.get(NAME, {})


def kept_nodes(cache: ClusterCache) -> list[str]:
    return sorted(each.node for each in kept(cache).values())


def test_the_place_of_a_deleted_pod_is_kept_until_its_replacement_is_bound() -> None:
    cache, job, pods = running_job()
    put(cache, pods[1], "node-2", phase="Running", deletionTimestamp=LEAVING)
    assert kept_nodes(cache) == ["node-2"]  # while it still leaves, too: others would be nominated for its space
    delete(cache, pods[1])
    [place] = kept(cache).values()
    assert (place.node, place.devices, place.lost_s, place.due_s) == ("node-2", whole(*range(8)), 1000, 0)
    (again,) = o.make_job_pods(job, 1, first=NODES)
    put(cache, again, now_s=1010)
    assert list(kept(cache)) == [str(slot) for slot in cache.slots.units[NAME].slots.values()][-1:]
    assert kept_nodes(cache) == ["node-2"]
    put(cache, again, "node-2", now_s=1020, phase="Running")
    assert kept(cache) == {}


def test_a_replacement_starts_where_the_lost_pod_was_and_others_wait() -> None:
    cache, job, pods = running_job()
    for number in range(8):
        cache.upsert_pod(cached_pod(f"small-{number}", 1))
    cache.flush(1000)
    scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
    scheduler.state.patch(cache.whole_state())
    scheduler.cycle(1000)
    known = cache.pods["default", pods[2]["metadata"]["name"]]
    cache.delete_pod(known)
    scheduler.state.patch(cache.flush(1001))
    decision = scheduler.cycle(1001)
    assert decision is None or not decision.plan.starts
    (again,) = o.make_job_pods(job, 1, first=NODES)
    meta = again["metadata"]
    cache.upsert_pod(cached_pod(meta["name"], 8, **{key: meta[key] for key in PASSED if key in meta}))
    scheduler.state.patch(cache.flush(1011))
    decision = scheduler.cycle(1011)
    assert decision is not None
    assert [(each.workload, each.node) for each in decision.plan.starts] == [(NAME, "node-3")]


def test_a_start_that_is_not_carried_out_leaves_the_place_kept() -> None:
    """The replacement is deleted while its start is being decided: the next one must find the place, too."""
    cache, job, pods = running_job()
    for number in range(8):
        cache.upsert_pod(cached_pod(f"small-{number}", 1))
    scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
    cache.flush(1000)
    scheduler.state.patch(cache.whole_state())
    cache.delete_pod(cache.pods["default", pods[-1]["metadata"]["name"]])
    (again,) = o.make_job_pods(job, 1, first=NODES)
    meta = again["metadata"]
    said = {key: meta[key] for key in PASSED if key in meta}
    cache.upsert_pod(cached_pod(meta["name"], 8, **said))
    scheduler.state.patch(cache.flush(1001))
    decision = scheduler.cycle(1001)
    assert decision is not None
    assert [each.workload for each in decision.plan.starts] == [NAME]
    scheduler.state.patch(decision.assumed)
    cache.upsert_pod(cached_pod(meta["name"], 8, **said, deletionTimestamp=LEAVING))
    scheduler.state.patch(cache.flush(1002))
    writes: Any = SimpleNamespace(client=None, cache=cache, spawn=lambda work: work.close(), publish=lambda: None)
    assert Binder(writes, lambda: 1002).bind(decision.plan.starts) == []
    scheduler.state.patch(cache.flush(1002))
    decision = scheduler.cycle(1003)
    assert decision is None or not decision.plan.starts, "smaller work took the place"


def test_the_place_of_a_pod_that_is_deleted_while_its_gang_starts_is_kept() -> None:
    """The watch shows its Binding and its deletion at once: nothing was published between them."""
    cache = cache_with_nodes(NODES)
    job = o.make_job("train", parallelism=NODES, completions=NODES)
    put_owners(cache, job)
    pods = o.make_job_pods(job, NODES)
    for number, pod in enumerate(pods[:-1], start=1):
        put(cache, pod, f"node-{number}", phase="Running")
    put(cache, pods[-1])
    last = cache.pods["default", pods[-1]["metadata"]["name"]]
    slot = str(cache.slots.units[NAME].slots[last.uid])
    cache.in_flight.begin_start(Start(NAME, slot, "node-4", whole(*range(8))), last)
    cache.flush(1000)
    assert cache.published.pods[NAME][slot].phase is Phase.ASSUMED
    put(cache, pods[-1], "node-4", deletionTimestamp=LEAVING)
    assert kept_nodes(cache) == ["node-4"]
    delete(cache, pods[-1])
    assert kept_nodes(cache) == ["node-4"]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_the_place_of_a_failed_pod_is_kept_and_that_of_one_that_is_done_is_not(phase: str) -> None:
    cache, _, pods = running_job()
    put(cache, pods[0], "node-1", phase=phase)
    assert kept_nodes(cache) == (["node-1"] if phase == "Failed" else [])


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({}, True),
        ({"suspend": True}, False),
        ({"parallelism": NODES - 1}, False),
        ({"status": {"failed": 6}}, True),
        ({"status": {"failed": 7}}, False),
        ({"status": {"failed": 3}, "backoffLimit": 2}, False),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "FailureTarget", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Failed", "status": "False"}]}}, True),
    ],
)
def test_a_place_is_kept_only_while_the_job_makes_more_pods(change: dict[str, Any], is_kept: bool) -> None:
    cache, _, pods = running_job()
    delete(cache, pods[1])
    put_owners(cache, o.make_job("train", **({"parallelism": NODES, "completions": NODES} | change)))
    cache.flush(1005)
    assert kept_nodes(cache) == (["node-2"] if is_kept else [])


def test_no_place_is_kept_once_the_job_is_deleted() -> None:
    cache, job, pods = running_job()
    delete(cache, pods[1])
    leaving = o.make_job("train", parallelism=NODES, completions=NODES)
    leaving["metadata"]["deletionTimestamp"] = LEAVING
    put_owners(cache, leaving)
    cache.flush(1005)
    assert kept(cache) == {}
    cache, job, pods = running_job()
    delete(cache, pods[1])
    owner = read_owner(job)
    assert not isinstance(owner, str)
    cache.gang_index.delete_owner(OwnerObject(owner))
    cache.flush(1005)
    assert kept(cache) == {}


def test_no_place_is_kept_for_a_pod_that_nothing_makes_again() -> None:
    cache, note = cache_with_nodes(2), {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "2"}
    for number in (1, 2):
        pod = {"metadata": {"name": f"w-{number}", "annotations": note}}
        put(cache, pod, f"node-{number}", phase="Running")
    delete(cache, {"metadata": {"name": "w-2"}})
    assert kept(cache) == {}


def test_no_place_is_kept_for_a_pod_that_the_scheduler_stopped() -> None:
    cache, _, pods = running_job()
    cache.lost_places.is_leading = True
    pod = cache.pods["default", pods[1]["metadata"]["name"]]
    slot = str(cache.slots.units[NAME].slots[pod.uid])
    cache.published.assume_releasing(NAME, slot)
    cache.in_flight.begin_eviction(pod)
    put(cache, pods[1], "node-2", phase="Running", deletionTimestamp=LEAVING)
    delete(cache, pods[1])
    assert kept(cache) == {}


def test_a_place_ends_with_its_node_and_with_the_gang() -> None:
    cache, _, pods = running_job()
    delete(cache, pods[1])
    cache.delete_node(wire_node("node-2"))
    cache.gang_index.touch_all()
    cache.flush(1005)
    assert kept(cache) == {}
    cache, _, pods = running_job()
    for pod in pods:
        delete(cache, pod)
    assert kept(cache) == {}
    assert NAME not in cache.published.workloads


def test_what_the_scheduler_gives_up_does_not_come_back() -> None:
    cache, _, pods = running_job()
    delete(cache, pods[1])
    [slot] = kept(cache)
    assert cache.lost_places.give_up(NAME, slot)
    cache.gang_index.touch_all()
    cache.flush(1300)
    assert kept(cache) == {}


def test_a_replica_that_does_not_lead_keeps_nothing() -> None:
    cache, _, pods = running_job()
    delete(cache, pods[1])
    cache.discard_decisions()
    cache.flush(1005)
    assert kept(cache) == {}


def test_after_failures_it_is_known_that_the_replacement_comes_later() -> None:
    """The Job controller waits 10 s, 20 s, 40 s ... before it replaces a pod that failed."""
    cache, _, pods = running_job()
    put(cache, pods[1], "node-2", phase="Failed")
    assert [each.due_s for each in kept(cache).values()] == [0]
    put_owners(cache, o.make_job("train", parallelism=NODES, completions=NODES, status={"failed": 4}))
    cache.flush(1001)
    assert [each.due_s for each in kept(cache).values()] == [1080]


def test_the_lost_pod_of_a_role_of_its_own_is_replaced_there_too() -> None:
    cache = cache_with_nodes(2)
    job = o.make_training_job("PyTorchJob", "train", {"Master": 1, "Worker": 1})
    put_owners(cache, job)
    (master,), (worker,) = o.make_training_pods(job, "master", 1), o.make_training_pods(job, "worker", 1)
    put(cache, master, "node-1", phase="Running")
    put(cache, worker, "node-2", phase="Running")
    delete(cache, master)
    assert [(slot, each.node) for slot, each in kept(cache).items()] == [("master-0", "node-1")]
    put(cache, master, uid="another", now_s=1005)
    assert [(slot, each.node) for slot, each in kept(cache).items()] == [("master-0", "node-1")]


def test_a_failed_pod_of_a_role_that_is_never_restarted_is_not_waited_for() -> None:
    cache = cache_with_nodes(2)
    job = o.make_training_job("PyTorchJob", "train", {"Master": 1, "Worker": 1})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    put_owners(cache, job)
    (master,), (worker,) = o.make_training_pods(job, "master", 1), o.make_training_pods(job, "worker", 1)
    put(cache, master, "node-1", phase="Running")
    put(cache, worker, "node-2", phase="Running")
    put(cache, worker, "node-2", phase="Failed")
    assert kept(cache) == {}
