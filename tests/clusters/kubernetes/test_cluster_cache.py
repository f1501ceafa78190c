"""What the scheduler is told follows from what is there. Nothing here needs a server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.clusters.kubernetes.client import Resource
from kaiwo.clusters.kubernetes.decode import wire_objects
from kaiwo.clusters.kubernetes.watch.cluster_watch import PodHandler
from kaiwo.decide.planned_starts.waiting_time import overdue_from_s
from kaiwo.model.errors import NotFoundError
from kaiwo.model.events import NodeChanged, PodChanged, PodGone, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.node import Node
from kaiwo.model.plan import Start
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import DECODER, cache_with_nodes, cached_pod, wire_node
from tests.clusters.told_state import ToldState

GANG = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "2"}

LATE = "2026-01-01T00:00:00Z"


def _grant(*gpus: int) -> dict[str, str]:
    return {GRANT_ANNOTATION: write_grant([Share(f"gpu-{gpu}", 1000, 192 * 1024) for gpu in gpus])}


def test_a_pod_is_told_when_it_comes_and_when_it_goes() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a"))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    assert (told.workload.name, told.workload.pods) == ("default/a", 1)
    cache.upsert_pod(cached_pod("a"))
    assert cache.flush() == ()
    cache.delete_pod(cached_pod("a"))
    assert cache.flush() == (WorkloadGone("default/a"),)
    assert cache.names.unit_of == {}


def test_a_workload_has_the_image_of_its_first_container() -> None:
    cache = cache_with_nodes()
    containers = [{"name": "main", "image": "torch:2.8"}, {"name": "side", "image": "proxy:1"}]
    cache.upsert_pod(cached_pod("a", containers=containers))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    assert told.workload.image == "torch:2.8"


def test_how_long_a_gang_ran_is_told_when_all_of_it_succeeded() -> None:
    cache = cache_with_nodes()
    pods = [
        cached_pod(name, node="node-1", phase="Running", annotations=GANG | _grant(at)) for at, name in enumerate("ab")
    ]
    for pod in pods:
        cache.upsert_pod(replace(pod, started_s=1_000))
    cache.flush(1_000)
    cache.upsert_pod(replace(pods[0], started_s=1_000, phase="Succeeded", version=pods[0].version + 1))
    cache.flush(1_500)
    cache.upsert_pod(replace(pods[1], started_s=1_000, phase="Succeeded", version=pods[1].version + 1))
    assert WorkloadGone("default/train", 900) in cache.flush(1_900)


@pytest.mark.parametrize("phase", ["Failed", ""])
def test_work_that_failed_or_was_deleted_says_nothing_of_how_long_such_work_runs(phase: str) -> None:
    cache = cache_with_nodes()
    pod = replace(cached_pod("a", node="node-1", phase="Running", annotations=_grant(0)), started_s=1_000)
    cache.upsert_pod(pod)
    cache.flush(1_000)
    cache.upsert_pod(replace(pod, phase=phase, version=pod.version + 1)) if phase else cache.delete_pod(pod)
    assert WorkloadGone("default/a", 0) in cache.flush(1_900)


def test_another_pod_of_the_same_name_is_another_pod() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", node="node-1", annotations=_grant(0)))
    cache.flush()
    cache.upsert_pod(cached_pod("a", uid="second"))
    assert PodGone("default/a", "main-0") in cache.flush()
    cache.delete_pod(cached_pod("a"))  # the late word of the first one's end
    assert cache.flush() == ()
    found = cache.slots.find("default/a", "main-0")
    assert found is not None
    assert found.uid == "second"


def test_a_decision_that_came_to_nothing_is_taken_back() -> None:
    cache = cache_with_nodes()
    pod = cached_pod("a")
    cache.upsert_pod(pod)
    cache.flush()
    start = Start("default/a", "main-0", "node-1", (Share("gpu-0", 1000, 1),))
    assumed = cache.placed.at("default/a", "main-0", pod, Phase.ASSUMED, start.node, start.devices)
    cache.published.assume_pod(assumed)
    cache.in_flight.begin_start(start, pod)
    assert cache.flush() == ()  # the scheduler knows
    cache.start_backoff.refuse("default/a", 100, "the webhook said no")
    cache.in_flight.end_start(pod)
    gone, changed = cache.flush()
    assert gone == PodGone("default/a", "main-0")
    assert isinstance(changed, WorkloadChanged)
    assert (changed.workload.not_before_s, changed.workload.not_before_why) == (101, "the webhook said no")


def test_a_binding_that_the_watch_confirms_is_running() -> None:
    cache = cache_with_nodes()
    pod = cached_pod("a")
    cache.upsert_pod(pod)
    start = Start("default/a", "main-0", "node-1", (Share("gpu-3", 1000, 192 * 1024),))
    cache.flush()
    cache.published.assume_pod(cache.placed.at("default/a", "main-0", pod, Phase.ASSUMED, "node-1", start.devices))
    cache.in_flight.begin_start(start, pod)
    cache.flush()
    cache.upsert_pod(cached_pod("a", node="node-1", annotations=_grant(3)))
    (told,) = cache.flush()
    assert isinstance(told, PodChanged)
    assert (told.pod.phase, told.pod.devices) == (Phase.RUNNING, start.devices)
    assert cache.in_flight.starts == {}


def test_an_older_word_does_not_undo_a_newer_one() -> None:
    """A pod was read after a failed Binding while the watch lagged behind: its devices must not become free again."""
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", resourceVersion="10"))
    cache.upsert_pod(cached_pod("a", node="node-1", annotations=_grant(0), resourceVersion="30"))
    cache.flush()
    cache.upsert_pod(cached_pod("a", labels={"late": "word"}, resourceVersion="20"))
    assert cache.flush() == ()
    assert cache.published.pods["default/a"]["main-0"].node == "node-1"


def test_a_list_that_is_older_than_a_pod_does_not_take_it_away() -> None:
    cache = cache_with_nodes()
    pods = PodHandler(Resource("/api/v1/pods", wire_objects.Pod), cache, DECODER)
    for version in (50, 60):
        cache.upsert_pod(cached_pod(f"p-{version}", resourceVersion=str(version)))
    pods.on_page([])
    pods.on_list_end("55")
    assert set(cache.pods) == {("default", "p-60")}


def test_pods_that_are_seen_before_their_node_are_dealt_devices_when_it_comes() -> None:
    cache = ClusterCache()
    cache.upsert_pod(cached_pod("theirs", gpus=2, node="late", schedulerName="other"))
    (told,) = cache.flush()
    assert isinstance(told, PodChanged)
    assert told.pod.devices == ()
    cache.upsert_node(wire_node("late"))
    _, told = cache.flush()
    assert isinstance(told, PodChanged)
    assert [share.gpu for share in told.pod.devices] == ["gpu-0", "gpu-1"]


def test_the_pods_of_a_gang_are_one_workload_once_they_are_all_there() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w-0", annotations=GANG))
    assert cache.flush() == ()
    assert "1 of the 2 that start together" in cache.blocked_pods["default", "w-0"]
    cache.upsert_pod(cached_pod("w-1", annotations=GANG))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    assert (told.workload.name, told.workload.pods, told.workload.roles[0].needed) == ("default/train", 2, 2)
    assert cache.blocked_pods == {}
    assert sorted(cache.slots.pods("default/train")) == ["main-0", "main-1"]


def test_a_role_whose_pods_ask_for_different_things_becomes_two() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w-0", annotations=GANG))
    cache.upsert_pod(cached_pod("w-1", gpus=4, annotations=GANG))
    (told,) = cache.flush()
    assert isinstance(told, WorkloadChanged)
    assert [(role.name, role.count, role.needed, role.request.gpus) for role in told.workload.roles] == [
        ("main.0", 1, 1, 1),
        ("main.1", 1, 1, 4),
    ]


def test_a_gang_with_a_pod_that_cannot_be_tried_waits_whole() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w-0", annotations=GANG))
    cache.upsert_pod(cached_pod("w-1", annotations=GANG, resourceClaims=[{"name": "x"}]))
    assert cache.flush() == ()
    assert "device claims" in cache.blocked_pods["default", "w-0"]
    gated = cached_pod("w-1", annotations=GANG, schedulingGates=[{"name": "g"}])
    cache.upsert_pod(gated)
    cache.flush()
    assert "scheduling gate" in cache.blocked_pods["default", "w-0"]


def test_a_gang_says_which_of_its_pods_are_left_to_another_scheduler() -> None:
    cache = cache_with_nodes()
    notes = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "3"}
    left = "m1 is left to default-scheduler; make all its pods with one schedulerName"
    cache.upsert_pod(cached_pod("m0", annotations=notes))
    cache.upsert_pod(cached_pod("m1", annotations=notes, schedulerName="default-scheduler"))
    cache.flush()
    waits = "gang default/g waits until its pods exist: 1 of the 3 that start together do"
    assert cache.blocked_pods["default", "m0"] == f"{waits}: {left}"
    cache.upsert_pod(cached_pod("m2", annotations=notes, schedulingGates=[{"name": "x.y/z"}]))
    cache.flush()
    assert cache.blocked_pods["default", "m0"] == f"gang default/g cannot start together: {left}"
    cache.delete_pod(cache.pods["default", "m1"])
    cache.flush()
    assert cache.blocked_pods["default", "m0"] == waits.replace("1 of", "2 of")
    cache.upsert_pod(cached_pod("m1", annotations=notes, schedulerName="x", phase="Failed"))
    cache.flush()
    assert cache.blocked_pods["default", "m0"] == waits.replace("1 of", "2 of")


def test_a_pod_and_a_gang_of_one_name_are_two_workloads() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("train"))
    for index in range(2):
        cache.upsert_pod(cached_pod(f"w-{index}", annotations=GANG))
    names = [event.workload.name for event in cache.flush() if isinstance(event, WorkloadChanged)]
    assert len(set(names)) == 2
    assert "default/train" in names


def test_a_leaving_pod_holds_its_place_and_its_replacement_has_one_too() -> None:
    cache = cache_with_nodes()
    for index in range(2):
        cache.upsert_pod(cached_pod(f"w-{index}", node="node-1", annotations=GANG | _grant(index)))
    cache.flush()
    cache.upsert_pod(
        cached_pod("w-1", node="node-1", annotations=GANG | _grant(1), deletionTimestamp="2026-01-01T00:00:00Z")
    )
    cache.upsert_pod(cached_pod("w-2", annotations=GANG))
    state = ToldState()
    cache.flush()
    state.patch(cache.whole_state())
    phases = {name: pod.phase for (_, name), pod in state.pods.items()}
    assert sorted(phases.values()) == [Phase.RELEASING, Phase.RUNNING]
    workload = state.workloads["default/train"]
    missing = [
        f"{role.name}-{place}"
        for role in workload.roles
        for place in range(role.count)
        if f"{role.name}-{place}" not in phases
    ]
    assert len(missing) == 1
    found = cache.slots.find("default/train", missing[0])
    assert found is not None
    assert found.name == "w-2"


def test_a_queue_can_be_replaced_and_the_default_one_always_exists() -> None:
    cache = cache_with_nodes()
    default = cache.queues["default"]
    cache.queue_events(cache.queue_cache.upsert(replace(default, priority=7)))
    cache.queue_events(cache.queue_cache.delete("default"))
    assert cache.queues == {"default": default}


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["come", "bind", "leave", "end", "go", "again"]), st.booleans()),
    max_size=40,
)


@given(STEPS)
def test_the_events_always_tell_the_whole_truth(steps: list[tuple[int, str, bool]]) -> None:
    """Pods come, are bound, leave, end and come back in any order, some of them as one gang."""
    cache, state = cache_with_nodes(), ToldState()
    state.patch(cache.whole_state())
    for number, step, settles in steps:
        notes = GANG if number < 3 else {}
        name, uid = f"w-{number}", f"uid-{number}-{step == 'again'}"
        if step == "come" or step == "again":
            cache.upsert_pod(cached_pod(name, uid=uid, annotations=notes))
        elif step == "go":
            if ("default", name) in cache.pods:
                cache.delete_pod(cache.pods["default", name])
        else:
            more = {"deletionTimestamp": LATE} if step == "leave" else {}
            phase = "Succeeded" if step == "end" else "Running"
            cache.upsert_pod(
                cached_pod(name, node="node-1", phase=phase, uid=uid, annotations=notes | _grant(number), **more)
            )
        if settles:
            state.patch(cache.flush())
    state.patch(cache.flush())
    truth = ToldState()
    truth.patch(cache.whole_state())
    assert vars(state) == vars(truth)
    holding = [pod for pod in cache.pods.values() if pod.node and not pod.is_finished]
    assert len(state.pods) == len(holding)
    assert truth.overcommitted() == []
    slots = {key for name in state.workloads for key in cache.slots.pods(name).values()}
    assert {pod.key for pod in slots} <= set(cache.pods)


def test_what_is_laid_over_a_node_stays_whatever_kubernetes_says_of_it_until_it_is_taken_off() -> None:
    cache = ClusterCache()
    cache.upsert_node(wire_node("node-1"))
    plain = cache.nodes["node-1"]

    def ill(node: Node) -> Node:
        return replace(node, gpus=tuple(replace(gpu, healthy=False, reason="hot") for gpu in node.gpus))

    cache.flush()
    cache.overlay_node("node-1", ill)
    assert cache.flush() == (NodeChanged(ill(plain)),)
    cache.overlay_node("node-1", ill)
    cache.upsert_node(wire_node("node-1"))
    assert cache.flush() == ()
    cache.overlay_node("node-1", None)
    assert cache.flush() == (NodeChanged(plain),)
    with pytest.raises(NotFoundError):
        cache.overlay_node("node-9", ill)


PAID = {"kaiwo.ai/queue": "poor", "kaiwo.ai/preemptible": "true"}


def _told(cache: ClusterCache, name: str) -> tuple[str, bool, list[str]]:
    workload = cache.published.workloads[f"default/{name}"]
    return workload.queue, workload.preemptible, sorted(cache.published.pods.get(workload.name, {}))


@pytest.mark.parametrize("said", [{"kaiwo.ai/queue": "rich"}, {"kaiwo.ai/preemptible": "false"}])
def test_a_pod_that_waits_does_not_say_who_pays_for_those_that_run(said: dict[str, str]) -> None:
    """It is older, waits for a queue that does not take it, and a pod that runs names its gang."""
    cache = cache_with_nodes()
    gang = {"kaiwo.ai/gang": "g", "kaiwo.ai/gang-size": "1"}
    cache.upsert_pod(replace(cached_pod("old", gpus=0, annotations=gang | PAID | said), created_s=1))
    cache.upsert_pod(replace(cached_pod("runs", node="node-1", annotations=PAID | _grant(0)), created_s=2))
    cache.flush()
    cache.upsert_pod(replace(cached_pod("runs", node="node-1", annotations=PAID | _grant(0) | gang), created_s=2))
    cache.flush()
    queue, preemptible, pods = _told(cache, "g")
    assert (queue, preemptible, len(pods)) == ("poor", True, 1)


@pytest.mark.parametrize("said", [{"kaiwo.ai/queue": "rich"}, {"kaiwo.ai/preemptible": "false"}])
def test_a_pod_that_runs_does_not_join_a_gang_that_others_pay_for(said: dict[str, str]) -> None:
    """Or one that may not be stopped. Also after a restart, when nobody remembers how it started."""
    rich = cached_pod("rich", node="node-1", annotations=GANG | PAID | said | _grant(0))
    poor = replace(cached_pod("poor", node="node-1", annotations=PAID | _grant(1)), created_s=9)
    joining = replace(cached_pod("poor", node="node-1", annotations=PAID | _grant(1) | GANG), created_s=9)
    for pods in ((rich, poor, joining), (rich, joining), (joining, rich)):
        cache = cache_with_nodes()
        for number, pod in enumerate(pods):
            cache.upsert_pod(replace(pod, version=pod.version + number))
            cache.flush()
        assert len(_told(cache, "train")[2]) == 1
        assert _told(cache, "poor")[:2] == ("poor", True)
    cache.delete_pod(cache.pods["default", "rich"])
    cache.flush()
    assert _told(cache, "train")[:2] == ("poor", True)
    assert "default/poor" not in cache.published.workloads


def test_pods_of_a_gang_that_an_earlier_version_started_stay_together() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("a", node="node-1", annotations=GANG | _grant(0)))
    cache.upsert_pod(
        cached_pod("b", node="node-1", annotations=GANG | PAID | {"kaiwo.ai/queue": "default"} | _grant(1))
    )
    cache.flush()
    assert len(_told(cache, "train")[2]) == 2


@pytest.mark.parametrize(
    "blocked", [{"annotations": {"kaiwo.ai/hold": "true"}}, {"schedulingGates": [{"name": "later"}]}]
)
def test_a_pod_waits_for_a_place_only_from_when_it_may_start(blocked: dict[str, Any]) -> None:
    """Else pods that were held for a day would be overdue, and go before all others, when they are released."""
    cache, policy = cache_with_nodes(), Policy()
    day_s, old = policy.max_wait_s, replace(cached_pod("old"), created_s=1_000)
    held = replace(cached_pod("held", **blocked), created_s=1_000)
    for pod in (old, held):
        cache.upsert_pod(pod)
    state = ClusterState()
    state.patch([*cache.whole_state(), *cache.flush(1_000)])
    cache.upsert_pod(replace(cached_pod("held"), created_s=1_000))
    state.patch(cache.flush(1_000 + day_s))
    due = {name: overdue_from_s(state, state.workloads[f"default/{name}"], policy) for name in ("old", "held")}
    assert due == {"old": 1_000 + day_s, "held": 1_000 + 2 * day_s}
    cache.touch([held.key])
    assert cache.flush(1_000 + 2 * day_s) == (), "it is released once"
