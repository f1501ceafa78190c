"""A claim for one pod at a time, and claims that were made for another pod."""

from typing import Any

import msgspec

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.decode import wire_objects
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.test_volumes import claim, using, volume

IN_USE = (
    "its volume claim data is for one pod at a time (ReadWriteOncePod), and pod a uses it; "
    "it waits until that one is gone"
)


def books_with(*modes: str, **meta: Any) -> ClusterCache:
    """A bound claim `data`."""
    cache = cache_with_nodes()
    bound = claim("data", accessModes=list(modes), volumeName="v") | {"status": {"phase": "Bound"}}
    bound["metadata"] |= meta
    _put(cache, bound)
    item = msgspec.json.decode(msgspec.json.encode(volume("v", "node-1")), type=wire_objects.PersistentVolume)
    cache.volumes.upsert_volume(item)
    cache.touch_claim_users()
    return cache


def _put(cache: ClusterCache, document: dict[str, Any]) -> None:
    item = msgspec.json.decode(msgspec.json.encode(document), type=wire_objects.Claim)
    cache.volumes.upsert_claim(item)
    cache.touch_claim_users()


def test_a_claim_for_one_pod_is_waited_for_until_that_pod_is_gone() -> None:
    cache = books_with("ReadWriteOncePod")
    theirs = cached_pod("a", volumes=using("data"), node="node-1", schedulerName="default-scheduler")
    cache.upsert_pod(theirs)
    cache.upsert_pod(cached_pod("b", volumes=using("data")))
    cache.flush()
    assert cache.blocked_pods["default", "b"] == IN_USE
    assert "default/b" not in cache.published.workloads
    cache.upsert_pod(cached_pod("a", volumes=using("data"), node="node-1", phase="Succeeded", schedulerName="x"))
    cache.flush()
    assert "default/b" in cache.published.workloads
    cache.upsert_pod(cached_pod("c", volumes=using("data"), node="node-1"))
    cache.flush()
    assert "default/b" not in cache.published.workloads
    cache.delete_pod(cache.pods["default", "c"])
    cache.flush()
    assert "default/b" in cache.published.workloads


def test_other_claims_and_pods_without_a_node_keep_nobody() -> None:
    cache = books_with("ReadWriteOnce")
    cache.upsert_pod(cached_pod("a", volumes=using("data"), node="node-1"))
    cache.upsert_pod(cached_pod("b", volumes=using("data")))
    cache.flush()
    assert "default/b" in cache.published.workloads
    cache = books_with("ReadWriteOncePod")
    for name in ("a", "b"):
        cache.upsert_pod(cached_pod(name, volumes=using("data")))
    cache.upsert_pod(cached_pod("e", namespace="elsewhere", uid="e", volumes=using("data"), node="node-1"))
    cache.flush()
    assert {"default/a", "default/b"} <= cache.published.workloads.keys()


def test_pods_that_would_start_together_do_not_share_a_claim_for_one_pod() -> None:
    cache = books_with("ReadWriteOncePod")
    one, other = (cached_pod(name, volumes=using("data")) for name in ("a", "b"))
    cache.upsert_pod(one)
    cache.upsert_pod(other)
    assert cache.claim_users.refusal(other) == ""
    assert cache.claim_users.refusal(other, [one]) == IN_USE


def test_a_claim_of_an_ephemeral_volume_must_be_the_pods_own() -> None:
    def waiting(cache: ClusterCache) -> str:
        cache.upsert_pod(cached_pod("p", volumes=[{"name": "scratch", "ephemeral": {}}]))
        cache.flush()
        return cache.blocked_pods.get(("default", "p"), "")

    def owned_by(uid: str) -> ClusterCache:
        cache = books_with("ReadWriteOnce", name="p-scratch", ownerReferences=[{"uid": uid, "controller": True}])
        return cache

    assert waiting(owned_by("uid-p")) == ""
    assert waiting(owned_by("uid-other")) == (
        "the volume claim p-scratch of its ephemeral volume belongs to something else; delete that claim"
    )
    assert waiting(cache_with_nodes()) == (
        "its volume claim p-scratch is not there yet; Kubernetes makes it for its ephemeral volume"
    )
    named = owned_by("uid-other")
    named.upsert_pod(cached_pod("q", volumes=using("p-scratch")))  # by its name anybody may use it
    named.flush()
    assert "default/q" in named.published.workloads
