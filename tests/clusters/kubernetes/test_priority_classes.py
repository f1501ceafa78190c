"""A pod's priority: as the API server wrote it, or as its class says where nobody wrote it."""

from pathlib import Path

import pytest

from kaiwo.clusters.kubernetes.cache.priority_classes import PATH, PriorityClasses
from kaiwo.clusters.kubernetes.decode.wire_objects import Meta, PriorityClass
from kaiwo.model.workload import Workload
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.running_scheduler import scheduled, until_bound, until_said
from tests.controlplane.plane import Plane
from tests.waiting import run


def classes(*found: tuple[str, int, bool]) -> PriorityClasses:
    priorities = PriorityClasses()
    for name, value, is_default in found:
        priorities.upsert(PriorityClass(Meta(name), value, is_default))
    return priorities


def test_what_is_written_on_the_pod_counts_first() -> None:
    priorities = classes(("high", 1000, False), ("usual", 5, True))
    assert priorities.of(cached_pod("w", priority=7, priorityClassName="high")) == (7, True)
    assert priorities.of(cached_pod("w", priority=7)) == (7, False)


def test_the_class_counts_where_nobody_wrote_it_and_the_default_where_there_is_no_class() -> None:
    priorities = classes(("high", 1000, False), ("usual", 5, True))
    assert priorities.of(cached_pod("w", priorityClassName="high")) == (1000, True)
    assert priorities.of(cached_pod("w")) == (5, True)
    assert priorities.of(cached_pod("w", priorityClassName="unknown")) == (0, True)
    assert PriorityClasses().of(cached_pod("w")) == (0, False)
    priorities.delete(PriorityClass(Meta("high")))
    assert priorities.of(cached_pod("w", priorityClassName="high")) == (0, True)


def test_the_scheduler_is_told_the_priority_of_the_class() -> None:
    cache = cache_with_nodes()
    cache.priorities.upsert(PriorityClass(Meta("high"), 1000))
    cache.upsert_pod(cached_pod("w", priorityClassName="high"))
    cache.flush()
    workload: Workload = cache.published.workloads["default/w"]
    assert workload.priority == 1000


@pytest.mark.parametrize(
    ("notes", "spec", "priority"),
    [
        ({}, {}, 0),
        ({}, {"priority": 0}, 0),
        ({}, {"priority": -5}, -5),
        ({"queue": "lab"}, {"priority": 0}, 0),
        ({"type": "inference"}, {"priority": 0}, 100),
        ({"type": "batch"}, {}, 50),
        ({"type": "inference"}, {"priority": 10, "priorityClassName": "mid"}, 10),
        ({"priority": "7", "type": "inference"}, {"priority": 10, "priorityClassName": "mid"}, 7),
    ],
)
def test_a_type_counts_only_where_somebody_wrote_it(
    notes: dict[str, str], spec: dict[str, object], priority: int
) -> None:
    """A default of ours would stand above all classes with small values."""
    cache = cache_with_nodes()
    cache.upsert_pod(cached_pod("w", annotations={f"kaiwo.ai/{key}": value for key, value in notes.items()}, **spec))
    cache.flush()
    assert cache.published.workloads["default/w"].priority == priority


def test_nobody_of_a_class_goes_for_a_pod_without_one(plane: Plane, tmp_path: Path) -> None:
    """Kubernetes gives it 0. The highest one may stop somebody, and that is who has no class."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            for name, value in (("t-mid", 10), ("t-top", 1_000_000)):
                await kubectl.create(PATH, {"metadata": {"name": name}, "value": value})
            try:
                await kubectl.node("node-1")
                await kubectl.node("node-2")
                await kubectl.pod("plain", gpus=8, terminationGracePeriodSeconds=0)
                await until_bound(kubectl, "plain")
                # The younger of two equals would go first.
                await kubectl.pod("mid", gpus=8, priorityClassName="t-mid", terminationGracePeriodSeconds=0)
                await until_bound(kubectl, "mid")
                for name in ("plain", "mid"):
                    await kubectl.phase(name, "Running")
                await kubectl.pod("later", gpus=8)
                await until_said(kubectl, "later", "GPU")
                await kubectl.pod("top", gpus=8, priorityClassName="t-top")
                await until_bound(kubectl, "top")
                left = {pod["metadata"]["name"] for pod in (await kubectl.get("/api/v1/pods"))["items"]}
                assert left == {"mid", "later", "top"}
            finally:
                for name in ("t-mid", "t-top"):
                    await kubectl.delete(f"{PATH}/{name}")

    run(test())


def test_a_class_counts_only_while_it_exists_and_a_system_class_only_in_kube_system() -> None:
    priorities = classes(("gold", 50_000, False), ("system-node-critical", 2_000_001_000, False))
    gold = cached_pod("w", priority=50_000, priorityClassName="gold")
    assert priorities.value_of_class(gold) == 50_000
    assert priorities.value_of_class(cached_pod("w", priority=50_000, priorityClassName="gone")) == 0
    assert priorities.value_of_class(cached_pod("w", priority=50_000)) == 0
    system = {"priority": 2_000_001_000, "priorityClassName": "system-node-critical"}
    assert priorities.value_of_class(cached_pod("w", **system)) == 0
    assert priorities.value_of_class(cached_pod("w", namespace="kube-system", **system)) == 2_000_001_000
    assert priorities.delete(PriorityClass(Meta("gold")), [gold]) == [gold.key], "its pods are read again"
    assert priorities.value_of_class(gold) == 0


def test_who_writes_himself_a_billion_stops_nobody(plane: Plane, tmp_path: Path) -> None:
    """No webhook answers: the scheduler alone holds him to the maximum. A class of the administrator's counts."""

    async def test() -> None:
        async with scheduled(plane, tmp_path) as kubectl:
            await kubectl.create(PATH, {"metadata": {"name": "t-gold"}, "value": 50_000})
            try:
                await kubectl.node("node-1")
                high = {"annotations": {"kaiwo.ai/priority": "1000"}, "terminationGracePeriodSeconds": 0}
                await kubectl.pod("victim", gpus=8, **high)
                await until_bound(kubectl, "victim")
                await kubectl.phase("victim", "Running")
                await kubectl.pod("greedy", gpus=8, annotations={"kaiwo.ai/priority": "1000000000"})
                await kubectl.pod("system", gpus=8, priorityClassName="system-node-critical")
                await until_said(kubectl, "greedy", "GPU")
                await until_said(kubectl, "system", "GPU")
                await kubectl.pod("gold", gpus=8, priorityClassName="t-gold")
                await until_bound(kubectl, "gold")
                left = {pod["metadata"]["name"] for pod in (await kubectl.get("/api/v1/pods"))["items"]}
                assert left == {"greedy", "system", "gold"}
            finally:
                await kubectl.delete(f"{PATH}/t-gold")

    run(test())
