"""Planned starts on pods, and the memory in the status of queues: how they are written and read."""

import msgspec
from msgspec import Raw

from kaiwo.clusters.kubernetes.cache.planned_start_annotations import (
    PLACE_ANNOTATION,
    format_start_time,
    read_planned_start,
    write_planned_start,
)
from kaiwo.clusters.kubernetes.cache.queue_history import MAX_STOPS, WHOLE, QueueHistory, StoredUsage, read_queue_status
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.model.events import PlannedStartChanged, PlannedStartGone, StoppedForOthers, WorkloadChanged, WorkloadGone
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.planned_start import DelayCause, PlannedPod, PlannedStart
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import whole
from tests.clusters.kubernetes.test_cluster_cache import GANG

PLACES = (PlannedPod("main-0", "node-1", whole(0)),)
PROMISE = PlannedStart("default/train", 1_700_000_000, PLACES, 60, 5, ("x",), DelayCause.NODE, "n")


def gang_of(*names: str) -> list[CachedPod]:
    return [cached_pod(name, annotations=GANG) for name in names]


def test_a_promise_is_read_as_it_was_written_and_says_its_time() -> None:
    text = write_planned_start(PROMISE)
    assert read_planned_start(text, "default/train") == PROMISE
    assert format_start_time(text) == "2023-11-14T22:13:20Z"


def test_what_somebody_spoilt_promises_nothing() -> None:
    for text in ("", "no", "e30=", write_planned_start(PROMISE)[:40], "eJyrrgUAAXUA+Q=="):
        assert read_planned_start(text, "w") is None


def test_a_promise_of_512_pods_with_8_devices_each_fits_into_an_annotation() -> None:
    devices = tuple(Share(f"gpu-{number}", 1000, 196_608) for number in range(8))
    places = tuple(PlannedPod(f"main-{at}", f"node-{at:04d}", devices, 96_000, 1 << 20) for at in range(512))
    assert len(write_planned_start(PlannedStart("default/huge", 1_700_000_000, places))) < 16 << 10


def test_the_next_leader_is_told_of_a_promise_and_one_who_decided_it_is_not() -> None:
    cache = cache_with_nodes()
    for pod in gang_of("w-0", "w-1"):
        cache.upsert_pod(pod)
    cache.flush()
    cache.plan_start("default/train", PROMISE)
    assert cache.flush() == ()
    ((pod, text),) = cache.planned_starts.pods_to_write("default/train", cache.slots.waiting("default/train"))
    assert cache.planned_starts.take_stale() == ["default/train"]

    other = cache_with_nodes()
    for each in gang_of("w-0", "w-1"):
        other.upsert_pod(each)
    other.upsert_pod(cached_pod(pod.name, annotations=GANG | {PLACE_ANNOTATION: text}))
    assert PlannedStartChanged(PROMISE) in other.flush()
    other.upsert_pod(cached_pod(pod.name, annotations=GANG))
    assert other.flush() == (PlannedStartGone("default/train"),)


def test_when_the_pod_that_bears_it_is_replaced_another_bears_it() -> None:
    cache = cache_with_nodes()
    bearer, partner = gang_of("w-0", "w-1")
    for pod in (bearer, partner):
        cache.upsert_pod(pod)
    cache.flush()
    cache.plan_start("default/train", PROMISE)
    cache.flush()
    cache.planned_starts.take_stale()
    cache.planned_starts.record_write(bearer, write_planned_start(PROMISE))
    assert cache.planned_starts.pods_to_write("default/train", cache.slots.waiting("default/train")) == []
    cache.delete_pod(bearer)
    assert WorkloadGone("default/train") in cache.flush()
    cache.upsert_pod(cached_pod("w-2", annotations=GANG))
    events = cache.flush()
    assert [type(event) for event in events] == [WorkloadChanged, PlannedStartChanged]
    assert cache.planned_starts.take_stale() == ["default/train"]


def test_whoever_follows_believes_the_pods() -> None:
    cache = cache_with_nodes()
    for pod in gang_of("w-0", "w-1"):
        cache.upsert_pod(pod)
    cache.flush()
    cache.plan_start("default/train", PROMISE)
    cache.flush()
    cache.discard_decisions()
    assert cache.flush() == (PlannedStartGone("default/train"),)
    assert cache.planned_starts.take_stale() == []


def test_a_queue_remembers_what_it_wrote() -> None:
    memory = QueueHistory()
    stop = StoppedForOthers("default/w", 100, ("lab",))
    memory.record_stop("lab", stop, ())
    memory.record_usage("lab", StoredUsage(100, (WHOLE // 4, WHOLE // 3, 0)))
    assert memory.take_unwritten() == ["lab"]
    words = memory.status("lab")
    assert words["usage"] == {"atSeconds": 100, "gpu": "0.25", "cpu": "0.333333333", "memory": "0"}
    other = QueueHistory()
    status = read_queue_status(Raw(msgspec.json.encode(words)))
    assert other.upsert("lab", status) == [stop]
    assert other.upsert("lab", status) == []
    assert abs(other.usage["lab"].part[1] - WHOLE // 3) < WHOLE >> 20
    assert other.last_stop("default/w") == stop
    assert other.take_unwritten() == []


def test_what_we_know_ourselves_counts_until_another_one_leads() -> None:
    memory = QueueHistory()
    memory.record_stop("lab", StoppedForOthers("default/w", 100), ())
    assert memory.upsert("lab", read_queue_status(Raw(b"{}"))) == []
    assert memory.last_stop("default/w") is not None
    memory.discard_decisions()
    memory.upsert("lab", read_queue_status(Raw(b"{}")))
    assert memory.last_stop("default/w") is None


def test_stops_of_long_ago_are_forgotten_unless_their_work_still_waits_and_the_list_stays_short() -> None:
    memory = QueueHistory()
    for name in ("gone", "waits"):
        memory.record_stop("lab", StoppedForOthers(name, 100), ("waits",))
    memory.record_stop("lab", StoppedForOthers("new", 4000), ("waits",))
    assert [each.workload for each in memory.all_stops()] == ["waits", "new"]
    for number in range(2 * MAX_STOPS):
        memory.record_stop("lab", StoppedForOthers(f"w-{number}", 4000 + number), ())
    assert len(memory.stops["lab"]) == MAX_STOPS


def test_a_spoilt_status_is_an_empty_memory() -> None:
    for text in (b"[]", b'{"usage": 4}', b'{"usage": {"gpu": "much"}}', b'{"usage": {"gpu": "7"}}', b'{"stops": [{}]}'):
        memory = QueueHistory()
        assert memory.upsert("lab", read_queue_status(Raw(text))) == []
        assert memory.usage == {}
