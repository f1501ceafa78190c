"""A first wave that was stopped, since the next one found no room, waits longer each time before it is tried again."""

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.start_backoff import STOPPED_HALF_WAY as WHY
from kaiwo.model.workload import Workload
from tests.clusters.kubernetes.api_objects import cache_with_nodes
from tests.clusters.kubernetes.test_previous_runs import put_owners, put_pods
from tests.conformance.gangs import objects as o

NAME = "default/serve-0"
EXCLUSIVE = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}


def begun() -> tuple[ClusterCache, o.Object, list[o.Object]]:
    """A leader that waits, whose two workers are made after it is bound."""
    cache, lws = cache_with_nodes(), o.make_lws("serve", 3, annotations=EXCLUSIVE)
    sets, leader = o.make_lws_replica(lws, 0, 0)
    put_owners(cache, lws, *sets)
    put_pods(cache, leader)
    return cache, lws, leader


def told_again(cache: ClusterCache) -> Workload:
    cache.gang_index.touch_all()
    cache.flush()
    return cache.published.workloads[NAME]


def test_it_waits_a_minute_then_two_and_never_longer_than_ten() -> None:
    cache, _, _ = begun()
    assert cache.published.workloads[NAME].not_before_s == 0
    pauses = []
    for _ in range(6):
        cache.gang_backoff.record_stop(NAME, 1_000)
        found = told_again(cache)
        assert found.not_before_why == WHY
        pauses.append(found.not_before_s - 1_000)
    assert pauses == [60, 120, 240, 480, 600, 600]


def test_after_an_hour_of_peace_it_begins_anew() -> None:
    cache, _, _ = begun()
    cache.gang_backoff.record_stop(NAME, 1_000)
    cache.gang_backoff.record_stop(NAME, 1_000 + 60 + 3_600)
    assert told_again(cache).not_before_s == 4_660 + 60


def test_a_gang_that_became_whole_has_nothing_to_fear_any_more() -> None:
    cache, lws, leader = begun()
    cache.gang_backoff.record_stop(NAME, 1_000)
    put_pods(cache, leader, node="node-1")
    assert told_again(cache).not_before_s == 0  # what runs is not held back
    sets, pods = o.make_lws_replica(lws, 0, 2)
    put_owners(cache, *sets)
    put_pods(cache, pods[1:])
    for pod in pods[1:]:
        put_pods(cache, [pod], node="node-1")
    for pod in pods:
        cache.delete_pod(cache.pods["default", pod["metadata"]["name"]])
    cache.flush()
    put_pods(cache, leader)
    assert cache.published.workloads[NAME].not_before_s == 0


def test_being_told_to_go_is_not_being_whole() -> None:
    """At that moment all its pods exist, and none of them is known to leave."""
    cache, lws, _ = begun()
    sets, pods = o.make_lws_replica(lws, 0, 2)
    put_owners(cache, *sets)
    put_pods(cache, pods[:1], node="node-1")
    put_pods(cache, pods[1:])
    cache.published.assume_releasing(NAME, "leader-0")
    cache.in_flight.begin_eviction(cache.pods["default", "serve-0"])
    cache.gang_backoff.record_stop(NAME, 1_000)
    cache.flush()
    for pod in pods:
        cache.delete_pod(cache.pods["default", pod["metadata"]["name"]])
    cache.flush()
    put_pods(cache, pods[:1])
    assert cache.published.workloads[NAME].not_before_s == 1_060


def test_a_gang_of_which_all_pods_exist_waits_for_room_alone() -> None:
    cache, job = cache_with_nodes(), o.make_job("train", parallelism=2, completions=6)
    put_owners(cache, job)
    put_pods(cache, o.make_job_pods(job, 2))
    cache.gang_backoff.record_stop("default/train", 1_000)
    cache.gang_index.touch_all()
    cache.flush()
    assert cache.published.workloads["default/train"].not_before_s == 0
