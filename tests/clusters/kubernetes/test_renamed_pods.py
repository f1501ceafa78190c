"""A plan is about the pods that the decision saw, whatever they are called by the time it is carried out.

A gang numbers the pods that it has. When one leaves, another may get its name: on a busy machine, a recovery stopped
the pod on the node that works, because the failed one had been deleted while the plan was being decided.
"""

from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.node_cache import OUT_OF_SERVICE
from kaiwo.clusters.kubernetes.client import ClusterAccess
from kaiwo.clusters.kubernetes.client.credentials import Credential, FixedCredential, Trust
from kaiwo.clusters.kubernetes.cluster import KubernetesCluster
from kaiwo.clusters.plan_checks import follow_renamed_pods
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.events import NominationGone, PodChanged, PodGone
from kaiwo.model.plan import Eviction, EvictionCause, Nomination, Plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.workload import Phase, Pod
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from kaiwo.runtime.loop.scheduling_loop import with_places
from tests.clusters.kubernetes.api_objects import cached_pod, wire_node
from tests.clusters.kubernetes.kubectl_cluster import whole
from tests.clusters.kubernetes.test_lost_places import NAME, WHOLE_NODE, put
from tests.clusters.kubernetes.test_previous_runs import LEAVING, PASSED, put_owners
from tests.conformance.gangs import objects as o
from tests.waiting import run

TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}

NOBODY = ClusterAccess("http://127.0.0.1:9", Trust(), FixedCredential(Credential()))  # nothing answers there


def gang_of_two(cache: ClusterCache) -> list[o.Object]:
    """It runs on the first two of four nodes."""
    for number in range(1, 5):
        cache.upsert_node(wire_node(f"node-{number}"))
    job = o.make_job("train", parallelism=2, completions=2)
    put_owners(cache, job)
    pods = o.make_job_pods(job, 2)
    for number, pod in enumerate(pods, start=1):
        put(cache, pod, f"node-{number}", phase="Running")
    return pods


@pytest.mark.parametrize("lost", [0, 1])
def test_a_recovery_never_stops_the_pod_on_the_node_that_works(lost: int) -> None:
    async def test() -> None:
        cluster = KubernetesCluster(NOBODY)
        cache = cluster.cache
        pods = gang_of_two(cache)
        uids = {pod.node: pod.uid for pod in cache.pods.values()}
        scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        scheduler.state.patch(cache.whole_state())
        scheduler.cycle(1000)
        cache.upsert_node(wire_node(f"node-{lost + 1}", ready="False", taints=[TAINT]))
        scheduler.state.patch(cache.flush(1001))
        decision = scheduler.cycle(1001)
        assert decision is not None
        plan = with_places(scheduler.state, decision.plan)
        assert [(each.cause, each.node) for each in plan.evictions] == [(EvictionCause.RECOVERY, f"node-{lost + 1}")]

        # Meanwhile the taint manager has deleted the pod.
        put(cache, pods[lost], f"node-{lost + 1}", phase="Running", deletionTimestamp=LEAVING)
        await cluster.apply(plan)
        assert uids[f"node-{2 - lost}"] not in cache.in_flight.evictions, "the pod on the node that works stays"
        phases = {pod.node: pod.phase for pod in cache.published.pods[NAME].values()}
        assert phases == {f"node-{lost + 1}": Phase.RELEASING, f"node-{2 - lost}": Phase.RUNNING}
        await cluster.close()

    run(test())


def test_a_recovery_stops_the_failed_pod_under_its_new_name() -> None:
    """Another pod of the gang left meanwhile, so that the one on the failed node has another number now."""

    async def test() -> None:
        cluster = KubernetesCluster(NOBODY)
        cache = cluster.cache
        pods = gang_of_two(cache)
        failed = next(pod.uid for pod in cache.pods.values() if pod.node == "node-2")
        scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        scheduler.state.patch(cache.whole_state())
        scheduler.cycle(1000)
        cache.upsert_node(wire_node("node-2", ready="False", taints=[TAINT]))
        scheduler.state.patch(cache.flush(1001))
        decision = scheduler.cycle(1001)
        assert decision is not None
        put(cache, pods[0], "node-1", phase="Running", deletionTimestamp=LEAVING)
        await cluster.apply(with_places(scheduler.state, decision.plan))
        assert cache.in_flight.evictions == {failed}
        await cluster.close()

    run(test())


def test_the_new_place_of_a_pod_that_recovers_is_kept_once() -> None:
    """The scheduler knew it under two names, found its node overdrawn, and gave both up."""

    async def test() -> None:
        cluster = KubernetesCluster(NOBODY)
        cache = cluster.cache
        pods = gang_of_two(cache)
        scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        scheduler.state.patch(cache.whole_state())
        scheduler.cycle(1000)
        cache.upsert_node(wire_node("node-1", ready="False", taints=[TAINT]))
        scheduler.state.patch(cache.flush(1001))
        decision = scheduler.cycle(1001)
        assert decision is not None
        [place] = decision.plan.nominations
        scheduler.state.patch(decision.assumed)
        await cluster.apply(with_places(scheduler.state, decision.plan))
        for now_s in range(1002, 1005):
            scheduler.state.patch(cache.flush(now_s))
            [kept] = scheduler.state.nominations[NAME].values()
            assert (kept.node, kept.devices) == (place.node, place.devices)
            decision = scheduler.cycle(now_s)
            assert decision is None or decision.plan.given_up == ()
            meta = pods[0]["metadata"]
            said = {key: meta[key] for key in PASSED if key in meta} | {"annotations": WHOLE_NODE}
            cache.upsert_pod(cached_pod(meta["name"], 8, "node-1", "Running", **said, deletionTimestamp=LEAVING))
        await cluster.close()

    run(test())


def pod(name: str, node: str, *devices: int, phase: Phase = Phase.RUNNING) -> Pod:
    return Pod("w", name, node, phase, whole(*devices))


def eviction(name: str, node: str, *devices: int, **more: Any) -> Eviction:
    return Eviction("w", name, EvictionCause.RECOVERY, node=node, devices=whole(*devices), **more)


def test_names_that_still_fit_and_evictions_without_a_place_stay_as_they_are() -> None:
    plan = Plan(evictions=(eviction("main-0", "n-1", 0), Eviction("w", "main-1", EvictionCause.RECLAIM)))
    pods = {"w": {"main-0": pod("main-0", "n-1", 0), "main-1": pod("main-1", "n-2", 0)}}
    assert follow_renamed_pods(plan, pods) == (plan, ())


def test_a_pod_of_the_same_node_is_told_apart_by_its_devices() -> None:
    plan = Plan(evictions=(eviction("main-0", "n-1", 0),))
    pods = {"w": {"main-0": pod("main-0", "n-1", 1), "leaving-0": pod("leaving-0", "n-1", 0)}}
    found = follow_renamed_pods(plan, pods)
    assert [each.pod for each in found.plan.evictions] == ["leaving-0"]
    assert found.events == [PodChanged(pods["w"]["main-0"])]


def test_a_pod_that_is_gone_is_not_stopped_and_its_new_place_is_not_kept() -> None:
    plan = Plan(
        evictions=(eviction("main-0", "n-1", 0),),
        nominations=(Nomination("w", "main-0", "n-3"), Nomination("w", "main-1", "n-4")),
    )
    found = follow_renamed_pods(plan, {})
    assert found.plan == Plan(nominations=(Nomination("w", "main-1", "n-4"),))
    assert found.events == [PodGone("w", "main-0"), NominationGone("w", "main-0")]
