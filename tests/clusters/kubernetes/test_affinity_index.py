"""Who is meant by the rules between pods, and who is told anew when a rule comes. Nothing here needs a server."""

from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.affinity_index import MAX_SELECTORS
from kaiwo.clusters.kubernetes.cache.cluster_cache import SCHEDULER, ClusterCache
from kaiwo.model.affinity import NodePreference, NodeRule, PodAffinity, RequiredPodAntiAffinity
from kaiwo.model.events import PodChanged, WorkloadChanged
from kaiwo.model.workload import Phase, role_of
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.feasible_nodes import feasible_nodes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(level: str = "rack", **more: Any) -> dict[str, Any]:
    return {"topologyKey": level, "labelSelector": {"matchLabels": {"app": "web"}}} | more


def apart(**more: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term(**more)]}}}


def neighbours_of(cache: ClusterCache, workload: str, slot: str = "main-0") -> PodAffinity | None:
    cache.flush()
    pod = cache.published.pods.get(workload, {}).get(slot)
    if pod is not None:
        return pod.neighbours
    return role_of(cache.published.workloads[workload], slot).request.neighbours


def may_go_to(cache: ClusterCache, workload: str) -> tuple[str, ...]:
    state = ClusterState()
    cache.flush()
    state.patch(cache.whole_state())
    return feasible_nodes(state.snapshot(0), role_of(state.workloads[workload], "main-0").request)


def test_without_rules_no_pod_carries_a_mark() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}))
    assert neighbours_of(cache, "default/a") is None


def test_a_new_rule_is_told_about_those_whom_it_means_and_nobody_else() -> None:
    cache = cache_with_nodes()
    for name, labels in (("a", {"app": "web"}), ("b", {"app": "db"}), ("c", {"app": "web"})):
        cache.upsert_pod(cached_pod(name, node="node-1", labels=labels, namespace="x" if name == "c" else "default"))
    cache.flush()
    cache.upsert_pod(cached_pod("new", **apart()))
    told = cache.flush()
    assert [each.pod.workload for each in told if isinstance(each, PodChanged)] == ["default/a"]
    assert neighbours_of(cache, "default/a") == PodAffinity(("default app=web",))
    assert neighbours_of(cache, "default/new") == PodAffinity(
        apart=(RequiredPodAntiAffinity("default app=web", "rack"),)
    )


def test_a_rule_that_nobody_has_any_more_is_forgotten() -> None:
    cache = cache_with_nodes()
    pod = cached_pod("new", **apart())
    cache.upsert_pod(pod)
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}))
    assert neighbours_of(cache, "default/a") is not None
    cache.delete_pod(pod)
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}))
    assert neighbours_of(cache, "default/a") is None


def test_a_rule_reaches_into_namespaces_by_their_labels() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}, namespace="x"))
    cache.upsert_pod(cached_pod("new", **apart(namespaceSelector={"matchLabels": {"team": "red"}})))
    assert neighbours_of(cache, "x/a") is None
    cache.affinity_index.upsert_namespace("x", {"team": "red"})
    assert neighbours_of(cache, "x/a") == PodAffinity(("namespaces(team=red) app=web",))
    cache.affinity_index.upsert_namespace("x", {"team": "blue"})
    assert neighbours_of(cache, "x/a") is None
    cache.affinity_index.upsert_namespace("x", None)
    assert neighbours_of(cache, "x/a") is None


def test_a_pod_that_is_told_to_go_counts_for_a_distance_and_not_for_a_spread() -> None:
    cache = cache_with_nodes()
    spread = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    cache.upsert_pod(cached_pod("new", topologySpreadConstraints=[spread], **apart()))
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}))
    assert neighbours_of(cache, "default/a") == PodAffinity(("default app=web", "default app=web, staying"))
    gone = "2026-01-01T00:00:00Z"
    cache.upsert_pod(cached_pod("a", node="node-1", labels={"app": "web"}, deletionTimestamp=gone))
    assert neighbours_of(cache, "default/a") == PodAffinity(("default app=web",))


@pytest.mark.parametrize(
    ("there", "new", "is_free"),
    [
        ({}, {}, False),
        ({"hostIP": "10.0.0.1"}, {}, False),
        ({}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, True),
        ({"protocol": "UDP"}, {"protocol": "TCP"}, True),
        ({"hostPort": 81}, {}, True),
    ],
)
def test_a_port_on_every_address_is_a_port_on_each(there: dict[str, Any], new: dict[str, Any], is_free: bool) -> None:
    cache = cache_with_nodes(nodes=1)
    for name, node, port, scheduler in (("old", "node-1", there, "other"), ("new", "", new, SCHEDULER)):
        container = {"name": "c", "ports": [{"hostPort": 80} | port]}
        cache.upsert_pod(cached_pod(name, node=node, containers=[container], schedulerName=scheduler))
    assert may_go_to(cache, "default/new") == (("node-1",) if is_free else ())


def test_space_that_another_scheduler_keeps_is_not_given_away() -> None:
    cache = cache_with_nodes()
    document = cached_pod("theirs", gpus=8, schedulerName="other", labels={"app": "web"})
    cache.upsert_pod(replace(document, nominated_node="node-1", version=document.version + 1))
    cache.upsert_pod(cached_pod("new", gpus=1, **apart()))
    assert may_go_to(cache, "default/new") == ("node-2",)
    held = cache.published.pods["default/theirs"]["main-0"]
    assert (held.node, held.phase, len(held.devices)) == ("node-1", Phase.RUNNING, 8)
    assert held.neighbours == PodAffinity(("kept:default app=web",))
    cache.upsert_pod(cached_pod("theirs", gpus=8, schedulerName="other", node="node-2"))
    assert may_go_to(cache, "default/new") == ("node-1",)
    assert [each.node for each in cache.published.pods["default/theirs"].values()] == ["node-2"]


def test_alternatives_of_affinity_and_terms_that_match_nothing() -> None:
    cache = cache_with_nodes()

    def put(name: str, *terms: dict[str, Any]) -> tuple[str, ...]:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
        cache.upsert_pod(cached_pod(name, affinity=affinity))
        return may_go_to(cache, f"default/{name}")

    first = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    second = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}
    assert put("both", first, second) == ("node-1", "node-2")
    assert put("one", first, {}) == ("node-1",)
    assert put("none", {}) == ()


def test_preferred_nodes_are_read_with_their_weights() -> None:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    preferred = [
        {"weight": 80, "preference": {"matchExpressions": [expression]}},
        {"weight": 20, "preference": {}},
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    request = cached_pod("a", affinity=affinity).spec.request
    assert request.prefers == (NodePreference(80, (NodeRule("disk", "In", ("ssd",)),)),)
    assert request.node_choices == ()


def test_a_pod_that_preempts_nobody_makes_a_workload_that_stops_nobody() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("calm", preemptionPolicy="Never"))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    assert not told.workload.stops_others


def anti_affinity(*keys: str) -> dict[str, object]:
    terms = [
        {
            "labelSelector": {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]},
            "topologyKey": "kubernetes.io/hostname",
            "namespaceSelector": {},
        }
        for key in keys
    ]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_the_pods_of_a_namespace_use_only_so_many_selectors_and_the_next_one_waits_until_one_is_gone() -> None:
    cache = cache_with_nodes()
    for number in range(MAX_SELECTORS // 32):
        keys = [f"k{32 * number + each}" for each in range(32)]
        cache.upsert_pod(cached_pod(f"greedy-{number}", affinity=anti_affinity(*keys)))
    cache.upsert_pod(cached_pod("one-more", affinity=anti_affinity("more")))
    cache.upsert_pod(cached_pod("same", affinity=anti_affinity("k0")))
    cache.upsert_pod(cached_pod("of-another", namespace="other", affinity=anti_affinity("mine")))
    cache.flush()
    assert "default/one-more" not in cache.published.workloads
    assert "use 256 different selectors" in cache.blocked_pods["default", "one-more"]
    assert {"default/same", "other/of-another"} <= cache.published.workloads.keys()
    cache.delete_pod(cached_pod("greedy-1"))
    cache.flush()
    assert "default/one-more" in cache.published.workloads


def test_a_pod_with_more_rules_than_anybody_needs_is_not_tried_and_says_why() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("many", affinity=anti_affinity(*(f"k{number}" for number in range(33)))))
    terms = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(101)]
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    cache.upsert_pod(cached_pod("nodes", affinity=required))
    cache.upsert_pod(cached_pod("tolerant", tolerations=[{"key": f"k{n}", "operator": "Exists"} for n in range(101)]))
    cache.flush()
    assert cache.blocked_pods["default", "tolerant"].startswith("it has 101 tolerations, and the maximum is 100")
    said = cache.blocked_pods["default", "many"], cache.blocked_pods["default", "nodes"]
    assert said[0] == "it has 33 rules of one kind about other pods, and the maximum is 32; use fewer"
    assert said[1] == "it has 101 rules about nodes, and the maximum is 100; use fewer, or label nodes"
