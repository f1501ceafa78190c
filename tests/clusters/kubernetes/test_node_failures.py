"""How nodes fail on Kubernetes: conditions, Leases, fences, and what is written on them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.node_cache import FAILURE_ANNOTATION, OUT_OF_SERVICE, NodeCache
from kaiwo.clusters.kubernetes.client import ApiError
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.decode.pod_decoder import PodDecoder
from kaiwo.clusters.kubernetes.watch.node_leases import LeaseTimes, NodeLease
from kaiwo.clusters.kubernetes.writers.evictor import Evictor
from kaiwo.clusters.kubernetes.writers.pod_writes import PodWrites
from kaiwo.model.events import NodeGone
from kaiwo.model.node import NodeFailure
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod, wire_node
from tests.clusters.kubernetes.test_previous_runs import LEAVING
from tests.waiting import run

TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
DURATION_S = 40


def lease(node: str, renewed: int) -> NodeLease:
    body = {"metadata": {"name": node}, "spec": {"renewTime": str(renewed), "leaseDurationSeconds": DURATION_S}}
    return msgspec.convert(body, NodeLease)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000

    def __call__(self) -> int:
        return self.now_s


def wire(name: str = "n", ready: str | None = "True", fenced: bool = False, note: str = "") -> wire_objects.Node:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "message": "kubelet"}]
    taints = [{"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}] if fenced else []
    body = {
        "metadata": {"name": name, "annotations": {FAILURE_ANNOTATION: note} if note else {}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "1"}, "conditions": conditions},
    }
    return msgspec.convert(body, wire_objects.Node)


def cache() -> tuple[NodeCache, Clock]:
    found, clock = NodeCache(), Clock()
    found.now_s = clock
    return found, clock


def test_a_node_that_misses_two_renewals_is_silent() -> None:
    times = LeaseTimes()
    for at in range(0, 41, 10):
        times.upsert(lease("alive", at), at)
    times.upsert(lease("dead", 0), 0)
    assert times.silent(22.0) == frozenset()
    assert times.silent(22.1) == {"dead"}


def test_nobody_is_silent_while_no_lease_is_renewed() -> None:
    """The API server, or the watch, stands still."""
    times = LeaseTimes()
    for node in ("a", "b"):
        times.upsert(lease(node, 0), 0)
        times.upsert(lease(node, 10), 10)
    assert times.silent(1000) == frozenset()


def test_a_late_watch_that_repeats_an_old_renewal_does_not_count() -> None:
    times = LeaseTimes()
    times.upsert(lease("dead", 0), 0)
    times.upsert(lease("alive", 0), 0)
    times.upsert(lease("dead", 0), 20)
    times.upsert(lease("alive", 20), 20)
    assert times.silent(23) == {"dead"}
    times.upsert(lease("dead", 24), 24)
    assert times.silent(25) == frozenset()


def test_a_node_whose_lease_is_gone_is_not_silent() -> None:
    times = LeaseTimes()
    times.upsert(lease("gone", 0), 0)
    times.upsert(lease("alive", 30), 30)
    times.delete(lease("gone", 0))
    assert times.silent(100) == frozenset()


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_has_failed_since_then(status: str) -> None:
    nodes, clock = cache()
    nodes.upsert(wire())
    clock.now_s = 1200
    event = nodes.upsert(wire(ready=status))
    assert event is not None
    assert (event.node.failure.since_s, event.node.failure.is_fenced, event.node.ready) == (1200, False, False)
    clock.now_s = 1300
    event = nodes.upsert(wire(ready=status, fenced=True))
    assert event is not None
    assert (event.node.failure.since_s, event.node.failure.is_fenced) == (1200, True)
    assert nodes.is_fenced("n")


def test_a_node_that_has_never_reported_has_not_failed() -> None:
    nodes, _ = cache()
    event = nodes.upsert(wire(ready=None))
    assert event is not None
    assert (event.node.ready, event.node.failure) == (False, NodeFailure())


def test_the_taint_alone_does_not_make_a_working_node_fail() -> None:
    nodes, _ = cache()
    event = nodes.upsert(wire(fenced=True))
    assert event is not None
    assert event.node.failure == NodeFailure()
    assert not nodes.is_fenced("n")


def test_a_silent_node_takes_no_work_and_comes_back() -> None:
    nodes, clock = cache()
    nodes.upsert(wire())
    [event] = nodes.set_silent({"n"})
    assert (event.node.ready, event.node.reason) == (False, "it has not renewed its Lease")
    assert nodes.set_silent({"n"}) == []
    clock.now_s = 1010
    [event] = nodes.set_silent(())
    assert event.node.ready
    assert (event.node.failure.times, event.node.failure.out_until_s) == (1, 0)
    assert nodes.set_silent({"unknown"}) == []


def test_what_is_remembered_is_written_and_read_by_the_next_leader() -> None:
    nodes, clock = cache()
    nodes.upsert(wire())
    assert nodes.to_write() == {}
    for _ in range(2):
        nodes.upsert(wire(ready="False", fenced=True))
        nodes.remember_bad("n", "default/train")
        clock.now_s += 10
        nodes.upsert(wire())
    text = nodes.to_write()["n"]
    other, _ = cache()
    event = other.upsert(wire(note=text))
    assert event is not None
    assert event.node.failure == NodeFailure(times=2, last_s=1010, out_until_s=1080, bad_for=("default/train",))
    assert other.to_write() == {}, "it is there already"
    nodes.upsert(wire(note=text))
    assert nodes.to_write() == {}


@pytest.mark.parametrize("damaged", ["{", "[]", '{"since_s": "x"}', '{"times": 99999999999999999999999}'])
def test_a_damaged_annotation_counts_as_none(damaged: str) -> None:
    nodes, _ = cache()
    event = nodes.upsert(wire(note=damaged))
    assert event is not None
    assert event.node.failure == NodeFailure()


def test_a_deleted_node_is_gone_for_certain() -> None:
    nodes, _ = cache()
    nodes.upsert(wire())
    assert nodes.delete("n") == NodeGone("n", 1000)
    assert nodes.is_fenced("n")


def test_a_pod_that_only_a_finalizer_holds_is_not_deleted_again() -> None:
    """A Job keeps a lost pod until it makes another, 10 s later. Each deletion was an event, and led to the next."""
    found = cache_with_nodes()
    found.upsert_node(wire_node("node-1", ready="False", taints=[TAINT]))
    found.upsert_pod(cached_pod("a", node="node-1", deletionTimestamp=LEAVING, deletionGracePeriodSeconds=30))
    found.upsert_pod(cached_pod("b", node="node-1", deletionTimestamp=LEAVING, deletionGracePeriodSeconds=0))
    found.upsert_pod(cached_pod("c", node="node-2", deletionTimestamp=LEAVING, deletionGracePeriodSeconds=30))
    found.flush()
    assert [pod.name for pod in found.leaving_pods_on_fenced_nodes()] == ["a"]


def test_a_pod_that_cannot_be_deleted_is_tried_again_after_a_pause() -> None:
    async def test() -> None:
        found, calls = cache_with_nodes(), list[str]()
        found.upsert_node(wire_node("node-1", ready="False", taints=[TAINT]))
        found.upsert_pod(cached_pod("a", node="node-1", deletionTimestamp=LEAVING, deletionGracePeriodSeconds=30))
        found.flush()

        async def read(path: str) -> bytes:
            calls.append(path)
            raise ApiError(403, "Forbidden", "nobody reads nodes today", call="GET")

        client: Any = SimpleNamespace(read=read)
        nothing: Any = lambda *_, **__: None  # noqa: E731
        is_over = asyncio.Event()

        def publish() -> None:
            if not is_over.is_set():
                evictor.delete_leaving_pods_on_fenced_nodes()

        writes = PodWrites(client, found, PodDecoder(), publish, nothing, nothing)
        evictor = Evictor(writes, lambda: 1000, nothing)
        publish()
        await asyncio.sleep(0.2)
        publish()
        await asyncio.sleep(0.2)
        assert calls == ["/api/v1/nodes/node-1"]
        is_over.set()
        await writes.close()

    run(test())
