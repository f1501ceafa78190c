"""The mix of requests is learned from what arrives; old mixes are forgotten."""

from kaiwo.model.events import Event, RequestMixChanged, WorkloadChanged, WorkloadGone
from kaiwo.model.request import Request
from kaiwo.model.request_mix import RequestKind
from kaiwo.model.workload import Role, Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.learned import seen_requests
from kaiwo.snapshot.learned.seen_requests import SeenRequests

HALF = Request(1000, 10, 1, 500)


def submitted(name: str, *requests: Request, pods: int = 1) -> WorkloadChanged:
    roles = tuple(Role(request, count=pods, name=f"r{at}") for at, request in enumerate(requests))
    return WorkloadChanged(Workload(f"default/{name}", roles))


def learned(*events: Event) -> ClusterState:
    state = ClusterState()
    state.patch(events)
    return state


def test_every_pod_of_a_new_workload_counts_once() -> None:
    event = submitted("a", HALF, Request(2000, 10), pods=3)
    state = learned(event, event)
    assert state.seen_requests.weights == {RequestKind(1000, 1, 500): 12, RequestKind(2000): 12}
    assert (state.seen_requests.arrivals, state.seen_requests.arrived_milli) == (6, 1500)


def test_work_that_has_gone_is_remembered() -> None:
    state = learned(submitted("a", HALF), WorkloadGone("default/a"))
    assert state.seen_requests.weights == {RequestKind(1000, 1, 500): 4}


def test_the_base_of_a_journal_has_the_mix() -> None:
    state = learned(submitted("a", HALF), submitted("b", HALF), WorkloadGone("default/a"))
    other = learned(*state.events())
    assert other.seen_requests.weights == state.seen_requests.weights
    assert other.seen_requests.arrivals == 2
    assert other.events() == state.events()


def test_partitions_and_memory_have_no_kind() -> None:
    state = learned(submitted("a", Request(0, 0, 1, gpu_mib=4000), Request(0, 0, 1, partition="CPX")))
    assert state.seen_requests.weights == {}
    assert state.seen_requests.arrivals == 2


def test_the_models_of_a_kind_have_no_order() -> None:
    state = learned(
        submitted("a", Request(0, 0, 1, gpu_models=("T4", "A10")), Request(0, 0, 1, gpu_models=("A10", "T4")))
    )
    assert len(state.seen_requests.weights) == 1


def test_a_question_does_not_change_the_mix_of_the_cluster() -> None:
    state = learned(submitted("a", HALF))
    state.fork().patch([submitted("b", HALF)])
    assert state.seen_requests.arrivals == 1


def test_an_old_mix_fades(monkeypatch) -> None:
    monkeypatch.setattr(seen_requests, "MOST_PODS", 8)
    seen = SeenRequests()
    for _ in range(4):
        seen.add(Workload("default/old", (Role(HALF),)))
    for _ in range(40):
        seen.add(Workload("default/new", (Role(Request(0, 0, 1)),)))
    assert set(seen.weights) == {RequestKind(0, 1, 1000)}
    assert seen.arrivals == 44


def test_a_mix_that_is_known_in_advance_replaces_what_was_seen() -> None:
    known = next(iter(learned(submitted("a", HALF)).seen_requests.as_events()))
    assert isinstance(known, RequestMixChanged)
    assert learned(submitted("b", Request(0, 0, 1)), known).seen_requests.weights == {RequestKind(1000, 1, 500): 4}
