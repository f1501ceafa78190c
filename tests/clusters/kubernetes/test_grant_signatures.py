"""Whose devices count in the scheduler's books: those of grants that it signed. No server is needed."""

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, grant_annotations, write_grant
from kaiwo.clusters.kubernetes.grants.grant_signer import GrantSigner
from kaiwo.clusters.kubernetes.grants.key_set import KeySet, make_key, renew
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.grant_signature import SIGNATURE_ANNOTATION
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import whole

SIGNED = KeySet((make_key(0),), is_first_signing=False)


def signing_cache(keys: KeySet = SIGNED) -> tuple[ClusterCache, GrantSigner]:
    cache, signer = cache_with_nodes(1), GrantSigner()
    signer.use(keys)
    cache.grants.signatures = signer
    return cache, signer


def held(cache: ClusterCache, name: str) -> list[str]:
    cache.flush()
    return [share.gpu for pod in cache.published.pods.get(f"default/{name}", {}).values() for share in pod.devices]


def used(cache: ClusterCache) -> set[str]:
    cache.flush()
    return {gpu for gpu, amounts in cache.published.ledger.usage_of("node-1").devices.items() if any(amounts)}


def signed(signer: GrantSigner, name: str, shares: tuple[Share, ...], node: str = "node-1") -> dict[str, str]:
    return grant_annotations(signer, f"uid-{name}", node, shares)


def test_a_signed_grant_counts() -> None:
    cache, signer = signing_cache()
    cache.upsert_pod(cached_pod("train", node="node-1", annotations=signed(signer, "train", whole(3))))
    assert held(cache, "train") == ["gpu-3"]


def test_a_forged_grant_of_a_pod_that_gets_nothing_holds_nothing() -> None:
    """With nodeName, our scheduler's name and no request: it would keep eight GPUs from everybody."""
    cache, signer = signing_cache()
    forged = {GRANT_ANNOTATION: write_grant(whole(*range(8)))}
    stolen = signed(signer, "victim", whole(*range(8)))
    cache.upsert_pod(cached_pod("unsigned", 0, node="node-1", annotations=forged))
    cache.upsert_pod(cached_pod("stolen", 0, node="node-1", annotations=stolen))
    cache.upsert_pod(cached_pod("moved", 0, node="node-1", annotations=signed(signer, "moved", whole(1), "node-2")))
    cache.upsert_pod(cached_pod("made-up", 0, node="node-1", annotations={**forged, SIGNATURE_ANNOTATION: "v1.x.y"}))
    assert used(cache) == set()


def test_who_changes_his_own_grant_is_counted_by_what_he_asked_for() -> None:
    """The kubelet gave him one device. Which one is unknown, so one is assumed, and never the victim's."""
    cache, signer = signing_cache()
    cache.upsert_pod(cached_pod("victim", node="node-1", annotations=signed(signer, "victim", whole(0))))
    cache.upsert_pod(cached_pod("thief", node="node-1", annotations={GRANT_ANNOTATION: write_grant(whole(0))}))
    assert held(cache, "victim") == ["gpu-0"]
    assert held(cache, "thief") == ["gpu-1"]


def test_who_really_holds_a_device_is_counted_whatever_his_scheduler_and_annotations_say() -> None:
    cache, signer = signing_cache()
    forged = {GRANT_ANNOTATION: write_grant(whole(1))}
    cache.upsert_pod(cached_pod("foreign", node="node-1", schedulerName="other", annotations=forged))
    cache.upsert_pod(cached_pod("refused", 2, node="node-1", schedulerName="other"))
    assert len(used(cache)) == 3  # nobody says who has what: as many as they ask for
    cache.set_holders("node-1", {"uid-foreign": whole(5)})
    assert held(cache, "foreign") == ["gpu-5"]
    assert held(cache, "refused") == []
    cache.upsert_pod(cached_pod("ours", node="node-1", annotations=signed(signer, "ours", whole(2))))
    assert used(cache) == {"gpu-5", "gpu-2"}  # ours counts before its agent has seen it
    cache.set_holders("node-1", None)
    assert len(used(cache)) == 4


def test_before_there_are_keys_grants_count_as_they_always_did() -> None:
    cache, _ = signing_cache(KeySet())
    cache.upsert_pod(cached_pod("old", node="node-1", annotations={GRANT_ANNOTATION: write_grant(whole(4))}))
    assert held(cache, "old") == ["gpu-4"]


def test_keys_are_renewed_with_an_overlap_and_only_the_newest_can_sign() -> None:
    first = renew(KeySet(), 0, is_all_signed=False, life_s=100)
    assert first.is_first_signing
    assert renew(first, 99, is_all_signed=True, life_s=100) == first
    both = renew(first, 100, is_all_signed=True, life_s=100)
    assert [bool(key.seed) for key in both.keys] == [True, False]
    assert renew(both, 150, is_all_signed=False, life_s=100) == both
    assert renew(both, 150, is_all_signed=True, life_s=100).keys == both.keys[:1]


def test_a_grant_that_this_process_signed_is_not_verified_again() -> None:
    cache, signer = signing_cache()
    annotations = signed(signer, "train", whole(0))
    signer._public.clear()  # nothing could be verified now
    cache.upsert_pod(cached_pod("train", node="node-1", annotations=annotations))
    assert held(cache, "train") == ["gpu-0"]
