"""Where no admission policy guards the status of pods and their Bindings, the cache believes only what must be true."""

import pytest
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.unguarded_status import SETTLES_S
from kaiwo.model.plan import Start
from kaiwo.model.queue import Queue
from kaiwo.model.workload import Phase, Pod
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import whole

NAME = "default/w"


def unguarded() -> ClusterCache:
    cache = cache_with_nodes()
    cache.claimed_ends.is_guarded = cache.foreign_bindings.is_guarded = False
    return cache


def say(cache: ClusterCache, now_s: int, phase: str = "Running", node: str = "node-1", **more: int) -> None:
    """A new version of the pod, as the watch shows it."""
    pod = cached_pod("w", node=node, phase=phase)
    known = cache.pods.get(pod.key)
    version = known.version + 1 if known is not None else 1
    cache.upsert_pod(replace(pod, version=version, **more))
    cache.flush(now_s)


def held(cache: ClusterCache) -> Pod | None:
    return cache.published.pods.get(NAME, {}).get("main-0")


def test_an_end_counts_after_it_has_stood_longer_than_a_kubelet_needs_to_contradict_it() -> None:
    cache = unguarded()
    say(cache, 100)
    say(cache, 200, "Succeeded")
    assert held(cache) is not None
    assert cache.claimed_ends.next_due_s == 200 + SETTLES_S
    cache.flush(200 + SETTLES_S - 1)
    assert held(cache) is not None
    cache.flush(200 + SETTLES_S)
    assert held(cache) is None
    assert cache.claimed_ends.next_due_s == 0


def test_each_contradiction_begins_the_time_anew() -> None:
    cache = unguarded()
    say(cache, 100)
    for moment_s in range(200, 300, 10):
        say(cache, moment_s, "Failed")
        say(cache, moment_s + 9, "Running")
    assert held(cache) is not None
    say(cache, 300, "Failed")
    cache.flush(300 + SETTLES_S - 1)
    assert held(cache) is not None


def test_an_end_that_is_repeated_is_no_later_for_it() -> None:
    cache = unguarded()
    say(cache, 100)
    for moment_s in range(200, 200 + SETTLES_S):
        say(cache, moment_s, "Succeeded")
    cache.flush(200 + SETTLES_S)
    assert held(cache) is None


def test_what_had_ended_before_it_was_seen_holds_nothing() -> None:
    """Its devices are another's by now."""
    cache = unguarded()
    say(cache, 100, "Succeeded")
    assert held(cache) is None


def test_a_deleted_pod_holds_nothing_whatever_its_status_says() -> None:
    cache = unguarded()
    say(cache, 100)
    say(cache, 200, "Succeeded")
    cache.delete_pod(cache.pods["default", "w"])
    cache.flush(201)
    assert held(cache) is None
    cache.flush(300)
    assert held(cache) is None


def test_with_a_policy_an_end_counts_at_once() -> None:
    cache = cache_with_nodes()
    say(cache, 100)
    say(cache, 200, "Succeeded")
    assert held(cache) is None


def test_a_start_is_what_was_seen_first_and_neither_early_nor_late() -> None:
    for claimed_s, expected_s in ((1, 50), (99, 99), (10_000, 100)):
        cache = unguarded()
        say(cache, 100, created_s=50, started_s=claimed_s)
        assert (found := held(cache)) is not None
        assert found.since_s == expected_s
        say(cache, 500, created_s=50, started_s=400)
        assert (found := held(cache)) is not None
        assert found.since_s == expected_s, "a later word changes nothing"


def test_a_start_is_not_before_the_binding() -> None:
    cache = unguarded()
    say(cache, 100, "Pending", node="", created_s=50)
    pod = cache.pods["default", "w"]
    cache.in_flight.begin_start(Start(NAME, "main-0", "node-1", whole(0)), pod)
    cache.flush(120)
    say(cache, 130, created_s=50, started_s=51)
    assert (found := held(cache)) is not None
    assert found.since_s == 120


def test_only_a_pod_that_somebody_else_binds_while_we_lead_is_a_foreign_binding() -> None:
    cache = unguarded()
    say(cache, 100)  # before we lead
    cache.foreign_bindings.start()
    assert cache.foreign_binding_slots() == []
    cache.delete_pod(cache.pods["default", "w"])
    say(cache, 200, "Pending", node="")
    cache.in_flight.begin_start(Start(NAME, "main-0", "node-1", whole(0)), cache.pods["default", "w"])
    cache.in_flight.end_start(cache.pods["default", "w"])  # no answer came
    say(cache, 210)
    assert cache.foreign_binding_slots() == [], "our own Binding may take effect late"
    cache.delete_pod(cache.pods["default", "w"])
    say(cache, 300, "Pending", node="")
    say(cache, 310)
    assert cache.foreign_binding_slots() == [(NAME, "main-0")]
    cache.discard_decisions()  # another replica leads
    assert cache.foreign_binding_slots() == []
    say(cache, 400, "Pending", node="")
    say(cache, 410)
    assert cache.foreign_binding_slots() == []


def test_with_a_policy_nobody_looks_for_foreign_bindings() -> None:
    cache = cache_with_nodes()
    cache.foreign_bindings.start()
    say(cache, 100)
    assert cache.foreign_binding_slots() == []


def test_a_pod_without_gpus_may_be_bound_by_anybody() -> None:
    cache = unguarded()
    cache.foreign_bindings.start()
    cache.upsert_pod(cached_pod("w", 0, "node-1", phase="Running"))
    cache.flush(100)
    assert cache.foreign_binding_slots() == []


def test_gpus_of_another_scheduler_are_charged_to_the_queue_of_their_namespace_and_follow_it() -> None:
    cache, state = cache_with_nodes(), ClusterState()
    cache.upsert_pod(cached_pod("foreign", 3, "node-1", phase="Running", schedulerName="other"))
    cache.upsert_pod(cached_pod("plain", 0, "node-1", phase="Running", schedulerName="other"))
    cache.flush(100)
    state.patch(cache.whole_state())
    state.refresh_tables()
    assert state.used["default"][0] == 3000
    assert state.non_preemptible["default"][0] == 3000, "nobody can stop it"
    state.patch(cache.queue_cache.upsert(Queue("lab", namespaces=("default",))))
    state.patch(cache.flush(101))
    state.refresh_tables()
    assert (state.used["default"][0], state.used["lab"][0]) == (0, 3000)
    cache.delete_pod(cache.pods["default", "foreign"])
    state.patch(cache.flush(102))
    assert state.used["lab"] == (0, 0, 0)


def test_whoever_takes_long_to_go_is_charged_until_he_is_gone() -> None:
    """With a grace period of years his program would go on, and his queue could start others beside it."""
    for grace_s, expected_milli in ((30, 0), (86_400, 2000)):
        cache, state = cache_with_nodes(), ClusterState()
        meta = {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace_s}
        cache.upsert_pod(cached_pod("w", 2, "node-1", phase="Running"))
        cache.flush(100)
        state.patch(cache.whole_state())
        assert state.used["default"][0] == 2000
        cache.upsert_pod(cached_pod("w", 2, "node-1", phase="Running", **meta))
        state.patch(cache.flush(101))
        assert (found := held(cache)) is not None
        assert found.phase is Phase.RELEASING
        assert state.used["default"][0] == expected_milli
        cache.delete_pod(cache.pods["default", "w"])
        state.patch(cache.flush(102))
        assert state.used["default"] == (0, 0, 0)


def test_a_pod_that_another_scheduler_only_promised_a_node_is_charged_as_well() -> None:
    cache = cache_with_nodes()
    pod = cached_pod("foreign", 3, schedulerName="other")
    cache.upsert_pod(replace(pod, nominated_node="node-1"))
    cache.flush(100)
    (found,) = cache.published.pods["default/foreign"].values()
    assert (found.phase, found.charged_to) == (Phase.RUNNING, "default")


@pytest.mark.parametrize("later", [{"kaiwo.ai/queue": "rich"}, {"kaiwo.ai/preemptible": "false"}, {}])
def test_who_pays_and_whether_it_may_be_stopped_is_what_was_first_seen(later: dict[str, str]) -> None:
    cache = unguarded()
    settled = {"kaiwo.ai/queue": "poor", "kaiwo.ai/preemptible": "true"}
    cache.upsert_pod(cached_pod("w", node="node-1", annotations=settled))
    cache.flush(100)
    changed = settled | later | {"kaiwo.ai/priority": "7"} if later else {"kaiwo.ai/priority": "7"}
    for _ in range(2):
        cache.upsert_pod(cached_pod("w", node="node-1", annotations=changed))
        cache.flush(200)
        workload = cache.published.workloads[NAME]
        assert (workload.queue, workload.preemptible, workload.priority) == ("poor", True, 7)
    cache.delete_pod(cache.pods["default", "w"])
    cache.upsert_pod(cached_pod("w", node="node-1", uid="uid-other", annotations={"kaiwo.ai/queue": "rich"}))
    cache.flush(300)
    assert cache.published.workloads[NAME].queue == "rich", "another pod"


@pytest.mark.parametrize("is_guarded", [True, False])
def test_what_was_decided_counts_while_a_pod_is_bound_whatever_is_written_on_it(is_guarded: bool) -> None:
    """The watch may show the Binding and what came after it as one change."""
    cache = unguarded()
    cache.claimed_ends.is_guarded = is_guarded
    poor, rich = ({"kaiwo.ai/queue": queue, "kaiwo.ai/preemptible": "true"} for queue in ("poor", "rich"))
    cache.upsert_pod(cached_pod("w", annotations=poor))
    cache.flush(100)
    start = Start(NAME, "main-0", "node-1", (whole(0),))
    cache.in_flight.begin_start(start, cache.pods["default", "w"], poor)
    cache.upsert_pod(cached_pod("w", annotations=rich))
    cache.flush(101)
    assert cache.published.workloads[NAME].queue == "poor"
    cache.upsert_pod(cached_pod("w", node="node-1", annotations=rich))
    cache.flush(102)
    assert cache.published.workloads[NAME].queue == "poor"
    assert not cache.in_flight.settled
