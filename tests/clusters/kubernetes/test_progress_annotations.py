"""Pods say how fast they are: read from an annotation, once for each text."""

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.model.events import ProgressReported
from kaiwo.model.performance import ProgressReport
from kaiwo.runtime.loop.performance_tracker import PerformanceTracker
from kaiwo.snapshot.cluster_state import ClusterState
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import opened, pod_path, start_of
from tests.clusters.kubernetes.test_checkpoint_annotations import GANG, put, review
from tests.controlplane.plane import Plane
from tests.waiting import run

SAID = "kaiwo.ai/progress"


def reports(cache: ClusterCache, now_s: int) -> list[ProgressReport]:
    return [event.progress for event in cache.flush(now_s) if isinstance(event, ProgressReported)]


@pytest.mark.parametrize("key", [SAID, "kaiwo.silogen.ai/progress"])
def test_a_text_is_one_report(key: str) -> None:
    cache = cache_with_nodes()
    put(cache, "train", {key: "step=2.1s expected=2s steps=12"})
    [found] = reports(cache, 100)
    assert (found.workload, found.at_s) == ("default/train", 100)
    assert (found.step_us, found.expected_us, found.steps) == (2_100_000, 2_000_000, 12)
    put(cache, "train", {key: "step=2.1s expected=2s steps=12", "other": "changed"})
    assert reports(cache, 110) == []
    put(cache, "train", {key: "bandwidth=180GB/s"})
    assert [each.bandwidth_mb_s for each in reports(cache, 120)] == [180_000]


def test_the_pods_of_a_gang_report_for_themselves() -> None:
    cache = cache_with_nodes()
    put(cache, "train-0", {**GANG, SAID: "step=2s"})
    put(cache, "train-1", {**GANG, SAID: "step=3s"})
    found = {each.pod: each.step_us for each in reports(cache, 100)}
    assert sorted(found.values()) == [2_000_000, 3_000_000]
    assert set(found) == set(cache.published.pods["default/train"])


def test_a_new_leader_without_a_home_knows_the_speeds_of_the_last_reports() -> None:
    """What it lacks is what earlier reports said, and which slow nodes rest."""
    cache = cache_with_nodes(3)
    for number, step in enumerate(("2s", "2s", "4s"), start=1):
        said = {SAID: f"step={step} expected=2s"}
        cache.upsert_pod(cached_pod(f"train-{number}", 8, f"node-{number}", "Running", annotations=said))
    events = cache.flush(100)
    state = ClusterState()
    state.patch((*cache.whole_state(), *events))
    measured = PerformanceTracker().measure(state, events)
    assert measured is not None
    assert {node: speed.permille for node, speed in measured.speeds.items()} == {
        "node-1": 1000, "node-2": 1000, "node-3": 500,
    }  # fmt: skip


def test_a_pod_that_waits_makes_no_progress() -> None:
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("train", annotations={SAID: "step=2s"}))
    assert reports(cache, 100) == []


@pytest.mark.parametrize("text", ["", "fast", "step=", "step=2s speed=4", "expected=2s", "x" * 100_000, "step=\x00"])
def test_what_cannot_be_read_is_told_once_and_has_no_effect(text: str) -> None:
    cache = cache_with_nodes()
    put(cache, "train", {SAID: text})
    assert reports(cache, 100) == []
    [sentence] = cache.progress.take_faults().values()
    assert sentence.startswith("Pod 'train': kaiwo.ai/progress")
    assert sentence.endswith("until then it is ignored")
    assert len(sentence) < 400
    put(cache, "train", {SAID: text, "other": "changed"})
    cache.flush(110)
    assert not cache.progress.take_faults()


def test_the_webhook_only_warns_and_progress_asks_for_nothing() -> None:
    found = review({SAID: "soon"})
    assert (found.refusal, [SAID in warning for warning in found.warnings]) == ("", [True])
    assert review({SAID: "step=2s"}).warnings == ()
    assert review({SAID: "step=2s"}, "default-scheduler").patch == ()


def test_a_pod_on_the_real_server_reports(plane: Plane) -> None:
    async def test() -> None:
        async with opened(plane) as scene:
            await scene.kubectl.pod("train")
            await scene.until_waiting("train")
            await scene.start(start_of("train"))
            cache = scene.cluster.cache
            for text in ("step=2s steps=1", "step=2s steps=2"):
                await scene.kubectl.patch(pod_path("train"), {"metadata": {"annotations": {SAID: text}}})
                await scene.until(lambda text=text: text in cache.progress._seen.get("default/train", {}).values())

    run(test())
