"""A PodGroup with sub-groups becomes a workload whose roles form a tree."""

from typing import Any

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerObject
from kaiwo.clusters.kubernetes.gangs.metadata import Owner
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.model.events import WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.workload import Workload, has_required_pods
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod


def some_tree(*leaves: dict[str, Any], minimum: int | None = None, **more: Any) -> ClusterCache:
    cache = cache_with_nodes()
    spec = {"subGroups": list(leaves), **({} if minimum is None else {"minSubGroup": minimum}), **more}
    metadata = {"name": "tree", "namespace": "default", "uid": "tree"}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    owner = read_owner(group)
    assert isinstance(owner, Owner)
    cache.gang_index.upsert_owner(OwnerObject(owner))
    return cache


def put(cache: ClusterCache, name: str, leaf: str, gpus: int = 1, **more: Any) -> None:
    labels = {"kai.scheduler/subgroup-name": leaf}
    cache.upsert_pod(cached_pod(name, gpus, annotations={"pod-group-name": "tree"}, labels=labels, **more))


def workload_of(cache: ClusterCache) -> Workload:
    told = [event for event in cache.flush() if isinstance(event, WorkloadChanged)]
    return told[-1].workload


def test_one_of_two_replicas_is_enough() -> None:
    cache = some_tree({"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}, minimum=1)
    put(cache, "a-0", "a")
    assert cache.flush() == ()
    assert (
        "waits until enough pods of its sub-groups exist (a 1 of 2, b 0 of 2)" in cache.blocked_pods["default", "a-0"]
    )
    put(cache, "a-1", "a")
    workload = workload_of(cache)
    assert has_required_pods(workload, {"a-0", "a-1"})
    assert not has_required_pods(workload, {"a-0"})
    put(cache, "b-0", "b")
    workload = workload_of(cache)
    assert not has_required_pods(workload, {"a-0", "b-0"}), "half of b is not b"
    put(cache, "b-1", "b")
    assert has_required_pods(workload_of(cache), {"b-0", "b-1"})


def test_a_leaf_of_two_kinds_of_pods_is_whole_with_both() -> None:
    cache = some_tree({"name": "up"}, {"name": "a", "parent": "up", "minMember": 2}, {"name": "b"}, minimum=1)
    put(cache, "head", "a", gpus=0)
    put(cache, "worker", "a", gpus=8)
    workload = workload_of(cache)
    assert [(role.name, role.group, role.needed) for role in workload.roles] == [("a.0", "a", 1), ("a.1", "a", 1)]
    assert has_required_pods(workload, {"a.0-0", "a.1-0"})
    assert not has_required_pods(workload, {"a.0-0"})


def test_a_tree_that_is_not_sound_says_so() -> None:
    cache = some_tree({"name": "a", "parent": "nowhere"})
    put(cache, "a-0", "a")
    assert cache.flush() == ()
    assert "the sub-group 'nowhere', which it does not have" in cache.blocked_pods["default", "a-0"]


def test_a_topology_constraint_is_a_level_of_the_whole_or_of_a_sub_group() -> None:
    rack = {"topology": "cluster", "requiredTopologyLevel": "rack"}
    zone = {"topology": "cluster", "preferredTopologyLevel": "zone"}
    cache = some_tree(
        {"name": "up", "topologyConstraint": rack}, {"name": "a", "parent": "up"}, topologyConstraint=zone
    )
    put(cache, "a-0", "a")
    workload = workload_of(cache)
    by_name = {group.name: group.levels for group in workload.groups}
    assert by_name["up"] == TopologyConstraint("cluster", "rack", "", "stated")
    assert by_name[""] == TopologyConstraint("cluster", "", "zone", "stated")
    assert by_name["a"] is None


def test_a_pod_group_without_sub_groups_has_levels_too() -> None:
    level = {"topology": "cluster", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    cache = some_tree(minMember=2, topologyConstraint=level)
    for number in range(2):
        cache.upsert_pod(cached_pod(f"p-{number}", 1, annotations={"pod-group-name": "tree"}))
    workload = workload_of(cache)
    assert workload.levels == TopologyConstraint("cluster", "zone", "rack", "stated")


def test_our_own_annotation_counts_before_the_pod_group() -> None:
    cache = some_tree(minMember=1, topologyConstraint={"requiredTopologyLevel": "zone"})
    notes = {"pod-group-name": "tree", "kaiwo.ai/required-level": "net.example/leaf"}
    cache.upsert_pod(cached_pod("p-0", 1, annotations=notes))
    assert workload_of(cache).levels == TopologyConstraint(required="net.example/leaf")
