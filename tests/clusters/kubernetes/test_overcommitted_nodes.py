"""A node of which more is held than it has keeps nobody away who asks for something else. No server is needed."""

import pytest
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.decode.pod_request import NODE_NAME
from kaiwo.clusters.ledger import Ledger
from kaiwo.explain.obstacle_sentences import sentence
from kaiwo.model.affinity import NodeRule
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Obstacle, Reason, RetryReason
from kaiwo.model.workload import Phase, Pod
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod, wire_node

WHOLE_MIB = 192 * 1024
NODE = Node(
    "n", 64_000, 1024, gpus=tuple(Gpu(f"gpu-{at}", "MI300X", WHOLE_MIB) for at in range(2)), extended={"rdma/hca": 0}
)


def _grant(*gpus: int) -> dict[str, str]:
    return {GRANT_ANNOTATION: write_grant([Share(f"gpu-{gpu}", 1000, WHOLE_MIB) for gpu in gpus])}


def _held(cache: ClusterCache, *names: str) -> list[str]:
    return sorted(share.gpu for name in names for share in cache.published.pods[f"default/{name}"]["main-0"].devices)


def _bound(name: str, *gpus: int, count: int = 1, node: str = "node-1", **more: str) -> CachedPod:
    return cached_pod(name, count, node=node, phase="Running", annotations=_grant(*gpus), **more)


@pytest.mark.parametrize(
    "other",
    [
        Pod("other", "main-0", "n", Phase.RUNNING, (Share("gpu-99", 1000, WHOLE_MIB),)),
        Pod("other", "main-0", "n", Phase.RUNNING, extended=(("rdma/hca", 1),)),
        Pod("other", "main-0", "n", Phase.RUNNING, memory_mib=4096),
        Pod("other", "main-0", "n", Phase.RUNNING, cpu_milli=100_000),
        Pod("other", "main-0", "n", Phase.RUNNING, (Share("gpu-1", 2000, 0),)),
    ],
)
def test_what_others_hold_too_much_of_refuses_nobody_who_does_not_ask_for_it(other: Pod) -> None:
    ledger = Ledger()
    ledger.take(other)
    mine = Pod("mine", "main-0", "n", Phase.ASSUMED, (Share("gpu-0", 1000, WHOLE_MIB),))
    assert ledger.refusal({"n": NODE}, [mine]) == ""
    assert ledger.refusal({"n": NODE}, [replace(other, workload="too")]) != ""
    assert "gpu-0" in ledger.refusal({"n": NODE}, [mine, replace(mine, workload="second")])


def test_a_pod_on_a_device_that_its_node_lost_is_counted_on_another() -> None:
    """The kubelet counts five of seven as used: two more fit, not three."""
    cache = cache_with_nodes(1)
    for at in range(3, 8):
        cache.upsert_pod(_bound(f"s-{at}", at))
    cache.flush()
    cache.upsert_node(wire_node("node-1", gpus=7))
    cache.flush()
    assert _held(cache, *(f"s-{at}" for at in range(3, 8))) == ["gpu-0", "gpu-3", "gpu-4", "gpu-5", "gpu-6"]
    cache.upsert_node(wire_node("node-1", gpus=8))
    cache.flush()
    assert _held(cache, "s-7") == ["gpu-7"]


@pytest.mark.parametrize("first", ["forged", "honest"])
def test_a_grant_of_a_device_that_is_not_there_counts_as_one_that_is(first: str) -> None:
    """Whoever is seen first: the forged one never hides that a device is taken."""
    cache = cache_with_nodes(1)
    pods = {"forged": _bound("forged", 99), "honest": _bound("honest", 0)}
    for name in sorted(pods, key=lambda each: each != first):
        cache.upsert_pod(pods[name])
    cache.flush()
    assert _held(cache, "forged", "honest") == ["gpu-0", "gpu-1"]


def test_a_node_without_devices_for_a_moment_changes_nothing_that_was_granted() -> None:
    cache = cache_with_nodes(1)
    cache.upsert_pod(_bound("a", 2, 3, count=2))
    cache.flush()
    cache.upsert_node(wire_node("node-1", gpus=0))
    cache.flush()
    assert _held(cache, "a") == ["gpu-2", "gpu-3"]


def test_a_node_that_had_no_room_twice_is_kept_away_from_until_it_is_forgiven() -> None:
    cache = cache_with_nodes(2)
    cache.upsert_pod(cached_pod("a"))
    cache.flush()
    away = NodeRule(NODE_NAME, "NotIn", ("node-1",))

    def rules() -> tuple[NodeRule, ...]:
        cache.flush()
        return cache.published.workloads["default/a"].roles[0].request.node_rules

    assert not cache.start_backoff.refuse("default/a", 100, "node node-1 has no pod slot left", "node-1")
    assert away not in rules()
    assert cache.start_backoff.refuse("default/a", 101, "node node-1 has no pod slot left", "node-1")
    assert away in rules()
    assert not cache.start_backoff.refuse("default/a", 103, "somebody was faster", "node-2")
    assert away in rules()
    cache.start_backoff.retry_avoided_nodes("default/a")
    assert away not in rules()


def test_a_wait_is_told_as_a_time() -> None:
    words = sentence(Obstacle(Reason.NOT_BEFORE, 1_794_761_257, 0, "s", facts=RetryReason("why")))
    assert words == "it will not be tried before 2026-11-15 16:47:37 UTC: why"
