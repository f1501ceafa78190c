"""Pods of a run before this one hold what they hold, and nobody waits for their end."""

from typing import Any

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.gang_index import OwnerObject
from kaiwo.clusters.kubernetes.gangs.registry import read_owner
from kaiwo.model.workload import Phase
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.conformance.gangs import objects as o

LEAVING = "2026-11-15T10:00:00Z"
PASSED = ("labels", "annotations", "ownerReferences", "deletionTimestamp")


def put_owners(cache: ClusterCache, *documents: o.Object) -> None:
    for document in documents:
        owner = read_owner(document)
        assert not isinstance(owner, str)
        cache.gang_index.upsert_owner(OwnerObject(owner))


def put_pods(cache: ClusterCache, pods: list[o.Object], node: str = "", gpus: int = 1, **more: Any) -> None:
    """The same pods as the recordings have, with the words of an API server."""
    for pod in pods:
        meta = pod["metadata"]
        said = {key: meta[key] for key in PASSED if key in meta}
        cache.upsert_pod(cached_pod(meta["name"], gpus, node, **said, **more))
    cache.flush()


def test_a_restarted_jobset_does_not_wait_for_old_pods_that_cannot_be_stopped() -> None:
    jobset = o.make_jobset(
        "a",
        o.replicated_job("driver", 1, 1),
        o.replicated_job("worker", 1, 2),
        startupPolicy={"startupPolicyOrder": "InOrder"},
    )
    (driver,), (old,) = o.make_jobset_jobs(jobset, "driver", attempt=1), o.make_jobset_jobs(jobset, "worker")
    cache = cache_with_nodes()
    put_owners(cache, jobset, old)
    workers = o.make_job_pods(old, 2)
    put_pods(cache, workers, node="node-1")
    put_pods(cache, o.make_job_pods(old, 2, deletionTimestamp=LEAVING), node="node-1")
    put_owners(cache, driver)
    put_pods(cache, o.make_job_pods(driver, 1))
    work = cache.published.workloads["default/a"]
    assert ([(role.name, role.needed) for role in work.roles], work.not_before_why) == ([("driver", 1)], "")
    assert "default/a" not in cache.published.pods  # so nothing of it is being stopped
    for pod in workers:
        (held,) = cache.published.pods[f"default/{pod['metadata']['name']}"].values()
        assert (held.phase, held.node, len(held.devices)) == (Phase.RELEASING, "node-1", 1)
    for pod in workers:
        cache.delete_pod(cache.pods["default", pod["metadata"]["name"]])
    cache.flush()
    assert list(cache.published.workloads) == ["default/a"]
    assert cache.published.pods == {}


def test_a_replica_that_is_made_anew_and_smaller_does_not_wait_for_its_old_workers() -> None:
    large, small = o.make_lws("u", 3), o.make_lws("u", 2)
    sets, old = o.make_lws_replica(large, 0, 2)
    cache = cache_with_nodes()
    put_owners(cache, large, *sets)
    put_pods(cache, old[2:], node="node-1", deletionTimestamp=LEAVING)
    put_owners(cache, small)
    put_pods(cache, o.make_lws_replica(small, 0, 1)[1])
    (work,) = [each for each in cache.published.workloads.values() if len(each.roles) == 2]
    assert [(role.name, role.needed) for role in work.roles] == [("leader", 1), ("worker", 1)]
    assert work.name not in cache.published.pods
    assert len(cache.published.pods) == 1
