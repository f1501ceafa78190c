"""The kept places of lost gang members are on a member that is left: the next leader keeps them, and none is forged."""

import base64
import zlib
from typing import Any

import msgspec
import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.cache.lost_place_annotations import (
    LOST_PLACES_ANNOTATION,
    MAX_TEXT,
    LostPlace,
    annotation_of,
    read_places,
    text_of,
)
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod
from kaiwo.clusters.kubernetes.gangs.ownership import Member
from kaiwo.clusters.kubernetes.grants.grant_signer import GrantSigner
from kaiwo.clusters.kubernetes.grants.key_set import KeySet, make_key
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import whole
from tests.clusters.kubernetes.test_lost_places import NAME, NODES, delete, kept, kept_nodes, put, running_job
from tests.clusters.kubernetes.test_previous_runs import put_owners
from tests.conformance.gangs import objects as o

KEY = LOST_PLACES_ANNOTATION
SIGNED = KeySet((make_key(0),), is_first_signing=False)
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}
GONE_AT = "1970-01-01T00:16:40Z"  # 1000 s


def with_key(cache: ClusterCache, keys: KeySet = SIGNED) -> ClusterCache:
    signer = GrantSigner()
    signer.use(keys)
    cache.grants.signatures = signer
    return cache


def notes(cache: ClusterCache) -> dict[str, str]:
    """What each pod carries once everything that is wanted was written, by name."""
    found = {pod.name: text for pod in cache.pods.values() if (text := pod.annotation(KEY))}
    for name in cache.lost_places.take_stale():
        for pod, text in cache.lost_places.pods_to_write(name, cache.slots.pods(name)):
            found[pod.name] = annotation_of(text, pod, cache.grants.signatures) or ""
            cache.lost_places.record_write(pod, text)
    return {name: text for name, text in found.items() if text}


def next_leader(job: o.Object, pods: list[o.Object], carried: dict[str, str], now_s: int = 1200) -> ClusterCache:
    """A scheduler that finds these pods, running since long, and knows nothing else."""
    cache = with_key(cache_with_nodes(NODES))
    put_owners(cache, job)
    for number, pod in enumerate(pods, start=1):
        meta = pod["metadata"]
        if meta["name"] in carried or not pod.get("gone"):
            note = {KEY: carried[meta["name"]]} if meta["name"] in carried else {}
            annotations = meta.get("annotations", {}) | note
            pod = pod | {"metadata": meta | {"annotations": annotations}}
            put(cache, pod, f"node-{number}", now_s, phase="Running")
    return cache


def lost_second() -> tuple[ClusterCache, o.Object, list[o.Object], dict[str, str]]:
    """The second pod of a running Job is gone; the leader has written what it keeps."""
    cache, job, pods = running_job()
    with_key(cache)
    delete(cache, pods[1])
    return cache, job, [pods[0], pods[1] | {"gone": True}, *pods[2:]], notes(cache)


def test_the_next_leader_keeps_the_place_since_the_loss_and_the_replacement_ends_it() -> None:
    before, job, pods, carried = lost_second()
    assert list(carried) == [pods[0]["metadata"]["name"]]  # one pod, and a bound one
    cache = next_leader(job, pods, carried)
    [place] = kept(cache).values()
    [earlier] = kept(before).values()
    assert place == earlier
    assert (place.node, place.devices, place.lost_s) == ("node-2", whole(*range(8)), 1000)
    assert notes(cache) == carried  # nothing is written anew
    (again,) = o.make_job_pods(job, 1, first=NODES)
    put(cache, again, "node-2", now_s=1210, phase="Running")
    assert kept(cache) == {}
    assert notes(cache) == {}


@pytest.mark.parametrize(("now_s", "is_kept"), [(1299, True), (1300, False)])
def test_the_time_of_the_policy_counts_from_the_loss(now_s: int, is_kept: bool) -> None:
    _, job, pods, carried = lost_second()
    cache = next_leader(job, pods, carried, now_s)
    scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
    scheduler.state.patch(cache.whole_state())
    decision = scheduler.cycle(now_s)
    given_up = decision.plan.given_up if decision is not None else ()
    assert bool(given_up) is not is_kept
    for workload, slot in given_up:
        assert cache.lost_places.give_up(workload, slot)
        assert notes(cache) == {}
        cache.gang_index.touch_all()
        cache.flush(now_s)  # the watch may still show the annotation
        assert kept(cache) == {}


def test_others_wait_under_the_next_leader_and_the_replacement_starts_there() -> None:
    _, job, pods, carried = lost_second()
    cache = next_leader(job, pods, carried)
    for number in range(8):
        cache.upsert_pod(cached_pod(f"small-{number}", 1))
    cache.flush(1200)
    scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
    scheduler.state.patch(cache.whole_state())
    decision = scheduler.cycle(1200)
    assert decision is None or not (decision.plan.starts or decision.plan.evictions)
    (again,) = o.make_job_pods(job, 1, first=NODES)
    put(cache, again, now_s=1201)
    scheduler.state.patch(cache.whole_state())
    decision = scheduler.cycle(1201)
    assert decision is not None
    assert [(each.workload, each.node) for each in decision.plan.starts] == [(NAME, "node-2")]


@pytest.mark.parametrize("forger", ["nobody signed it", "another key", "moved from another pod", "longer kept"])
def test_what_the_scheduler_did_not_sign_for_this_pod_keeps_nothing(forger: str) -> None:
    _, job, pods, carried = lost_second()
    [(name, note)] = carried.items()
    text, _, signature = note.partition(":")
    assert signature
    if forger == "nobody signed it":
        note = text
    elif forger == "another key":
        other = GrantSigner()
        other.use(KeySet((make_key(1),), is_first_signing=False))
        note = annotation_of(text, cached_pod(name), other) or ""
    elif forger == "moved from another pod":
        name = pods[2]["metadata"]["name"]
    else:
        places = msgspec.json.decode(zlib.decompress(base64.b64decode(text)))
        places[0]["since_s"] = 1199
        text = base64.b64encode(zlib.compress(msgspec.json.encode(places))).decode()
        note = f"{text}:{signature}"
    cache = next_leader(job, pods, {name: note})
    assert kept(cache) == {}
    assert notes(cache) == {}  # and it goes


def test_a_carrier_that_goes_is_replaced_by_another_and_both_places_are_kept() -> None:
    cache, job, pods, _ = lost_second()
    carrier = pods[0]
    delete(cache, carrier, now_s=1050)
    now = notes(cache)
    assert list(now) == [pods[2]["metadata"]["name"]]
    pods[0] = carrier | {"gone": True}
    after = next_leader(job, pods, now)
    assert kept_nodes(after) == ["node-1", "node-2"]
    assert sorted(each.lost_s for each in kept(after).values()) == [1000, 1050]


@pytest.mark.parametrize(
    "change", [{"suspend": True}, {"parallelism": NODES - 1}, {"status": {"failed": 7}}, {"deletionTimestamp": GONE_AT}]
)
def test_a_place_that_no_replacement_can_need_is_taken_off_the_pod(change: dict[str, Any]) -> None:
    cache, job, pods, carried = lost_second()
    for found in (cache, next_leader(job, pods, carried)):
        changed = o.make_job("train", **({"parallelism": NODES, "completions": NODES} | change))
        if "deletionTimestamp" in change:
            changed["metadata"]["deletionTimestamp"] = GONE_AT
        put_owners(found, changed)
        found.flush(1205)
        assert kept(found) == {}
        assert notes(found) == {}


def test_a_standby_shows_what_is_on_the_pods_and_keeps_nothing_of_its_own() -> None:
    _, job, pods, carried = lost_second()
    cache = next_leader(job, pods, carried)
    for _ in range(3):
        cache.discard_decisions()
        cache.flush(1210)
        assert kept_nodes(cache) == ["node-2"]
    (carrier,) = carried
    put(cache, next(pod for pod in pods if pod["metadata"]["name"] == carrier), "node-1", 1220, phase="Running")
    cache.discard_decisions()
    cache.flush(1230)
    assert kept(cache) == {}  # the leader has taken it off


def test_a_write_that_the_watch_does_not_show_yet_is_not_written_again() -> None:
    cache, _, _, carried = lost_second()
    assert carried
    cache.gang_index.touch_all()
    cache.flush(1001)
    [name] = cache.lost_places.take_stale()
    assert cache.lost_places.pods_to_write(name, cache.slots.pods(name)) == []


@pytest.mark.parametrize(("status", "is_kept"), [({}, True), (EVICTED, False)])
def test_who_left_while_nobody_led_is_waited_for_unless_the_former_leader_may_have_evicted_it(
    status: dict[str, Any], is_kept: bool
) -> None:
    _, job, pods = running_job()
    cache = cache_with_nodes(NODES)
    put_owners(cache, job)
    leaving = {"deletionTimestamp": GONE_AT, "status": {"phase": "Running"} | status}
    for number, pod in enumerate(pods, start=1):
        put(cache, pod, f"node-{number}", 1100, phase="Running", **(leaving if number == 2 else {}))
    assert kept_nodes(cache) == (["node-2"] if is_kept else [])
    if is_kept:
        assert [each.lost_s for each in kept(cache).values()] == [1000]
        delete(cache, pods[1], 1130)
        assert kept_nodes(cache) == ["node-2"]


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_somebody_else_evicts_is_waited_for_only_by_the_leader(leads: bool) -> None:
    cache, _, pods = running_job()
    cache.lost_places.is_leading = leads
    put(cache, pods[1], "node-2", phase="Running", deletionTimestamp=GONE_AT, status={"phase": "Running"} | EVICTED)
    assert kept_nodes(cache) == (["node-2"] if leads else [])


@pytest.mark.parametrize("text", ["!", "AAAA", base64.b64encode(zlib.compress(b"[{}]")).decode(), "é" * 50])
def test_what_cannot_be_read_keeps_nothing(text: str) -> None:
    cache = cache_with_nodes(1)
    pod = cached_pod("a", annotations={KEY: text})
    assert read_places(pod, NAME, 5, cache.grants.signatures) == ()


def lost_place(number: int, since_s: int = 100) -> LostPlace:
    place = Pod(NAME, f"workers-{number}", f"node-{number}", devices=whole(*range(8)))
    return LostPlace(f"uid-{number:032d}", Member(f"w-{number}", "default"), Request(gpus=8), place, since_s)


def carrier_with(text: str, namespace: str = "default") -> CachedPod:
    return cached_pod("a", annotations={KEY: text}, namespace=namespace)


def test_no_clock_that_is_ahead_and_no_other_namespace_keeps_a_place_for_longer() -> None:
    unsigned, text = cache_with_nodes(1).grants.signatures, text_of([lost_place(1, since_s=500)])
    [read] = read_places(carrier_with(text), NAME, 400, unsigned)
    assert read.since_s == 400
    [read] = read_places(carrier_with(text), NAME, 600, unsigned)
    assert read.since_s == 500
    assert read_places(carrier_with(text, "elsewhere"), NAME, 600, unsigned) == ()
    assert read_places(carrier_with(text_of([lost_place(1, since_s=0)])), NAME, 600, unsigned) == ()


def test_the_places_of_a_gang_of_512_fit_on_one_pod() -> None:
    places = [lost_place(number) for number in range(511)]
    text = text_of(places)
    assert len(text) <= MAX_TEXT
    unsigned = cache_with_nodes(1).grants.signatures
    assert sorted(each.uid for each in read_places(carrier_with(text), NAME, 600, unsigned)) == [
        each.uid for each in places
    ]
