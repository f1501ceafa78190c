"""Stories of gangs that lose pods, as a scheduler on Kubernetes lives through them: real decisions on a real cache."""

from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.device_grants import GRANT_ANNOTATION, write_grant
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.plan import Plan
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod
from tests.clusters.kubernetes.kubectl_cluster import whole
from tests.clusters.kubernetes.test_previous_runs import LEAVING, PASSED, put_owners
from tests.conformance.gangs import objects as o

KEPT_S, HOUR_S = DEFAULT_POLICY.keep_lost_place_s, 3600
NODES, NAME = 4, "default/train"
WHOLE = {GRANT_ANNOTATION: write_grant(whole(*range(8)))}


class Story:
    """A Job whose pods fill all nodes, beside the queues that a test names."""

    def __init__(self, *queues: Queue, pods: int = NODES, annotations: dict[str, str] | None = None) -> None:
        self.now_s = 10_000
        self.cache = cache_with_nodes(NODES)
        for queue in queues:
            self.cache.queue_cache.upsert(queue)
        self.annotations = annotations or {}
        self.job = o.make_job("train", parallelism=pods, completions=pods)
        put_owners(self.cache, self.job)
        self.pods = o.make_job_pods(self.job, pods)
        for number, pod in enumerate(self.pods, start=1):
            self.put(pod, f"node-{number}", phase="Running")
        self.scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        self.cache.flush(self.now_s)
        self.scheduler.state.patch(self.cache.whole_state())
        self.cycle()

    def put(self, pod: o.Object, node: str = "", **more: Any) -> None:
        meta = pod["metadata"]
        said = {key: meta[key] for key in PASSED if key in meta}
        said["annotations"] = (
            said.get("annotations", {}) | self.annotations | (WHOLE if node else {}) | more.pop("annotations", {})
        )
        self.cache.upsert_pod(cached_pod(meta["name"], 8, node, **(said | more)))

    def small(self, *names: str, **more: Any) -> None:
        for name in names:
            self.cache.upsert_pod(cached_pod(name, 1, **more))

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            self.put(self.pods[number], f"node-{number + 1}", phase="Running", deletionTimestamp=LEAVING)
            self.cycle()
            self.cache.delete_pod(self.cache.pods["default", self.pods[number]["metadata"]["name"]])
        self.cycle()

    def replace(self, many: int = 1, first: int = NODES, **more: Any) -> None:
        for pod in o.make_job_pods(self.job, many, first=first):
            self.put(pod, **more)

    def cycle(self) -> Plan | None:
        self.scheduler.state.patch(self.cache.flush(self.now_s))
        decision = self.scheduler.cycle(self.now_s)
        if decision is None:
            return None
        for workload, slot in decision.plan.given_up:
            self.cache.lost_places.give_up(workload, slot)
            self.cache.gang_index.touch_all()
        return decision.plan

    def starts(self, cycles: int = 1) -> list[tuple[str, str]]:
        plans = [plan for _ in range(cycles) if (plan := self.cycle()) is not None]
        return [(each.workload.partition("/")[2], each.node) for plan in plans for each in plan.starts]

    def kept(self) -> list[str]:
        return sorted(each.node for each in self.cache.published.nominations.get(NAME, {}).values())


def test_a_clock_that_is_set_back_keeps_no_place_for_longer() -> None:
    story = Story()
    story.small("small")
    story.lose(1)
    assert story.kept() == ["node-2"]
    story.now_s -= HOUR_S
    assert story.starts() == []
    story.now_s += KEPT_S
    assert story.starts(2) == [("small", "node-2")]


def test_all_pods_but_one_go_and_all_come_back() -> None:
    story = Story()
    story.small(*(f"small-{number}" for number in range(8)))
    story.lose(0, 1, 2)
    assert story.kept() == ["node-1", "node-2", "node-3"]
    assert story.starts() == []
    story.replace(3)
    assert story.starts() == [("train", f"node-{number}") for number in (1, 2, 3)]


def test_a_replacement_with_a_gate_gives_the_place_to_others_in_time() -> None:
    story = Story()
    story.small("small")
    story.lose(1)
    story.replace(schedulingGates=[{"name": "example.com/later"}])
    story.now_s += KEPT_S
    assert story.starts(2) == [("small", "node-2")]


def test_a_replacement_that_may_not_go_there_gives_the_place_to_others_in_time() -> None:
    story = Story()
    story.small("small")
    story.lose(1)
    story.replace(nodeSelector={"example.com/zone": "elsewhere"})
    assert story.starts() == []
    story.now_s += KEPT_S
    assert story.starts(2) == [("small", "node-2")]


def test_a_limit_that_is_lowered_meanwhile_stops_nobody_else() -> None:
    story = Story(Queue("lab", gpu=QueueAmounts(limit=32_000)), Queue("other"), annotations={"kaiwo.ai/queue": "lab"})
    story.small("small", annotations={"kaiwo.ai/queue": "other"})
    story.lose(1)
    story.cache.queue_cache.upsert(Queue("lab", gpu=QueueAmounts(limit=24_000)))
    story.replace()
    story.cycle()
    story.now_s += KEPT_S
    assert ("small", "node-2") in story.starts(2)


def test_a_gang_that_loses_a_pod_again_and_again_keeps_one_place_at_a_time() -> None:
    story = Story()
    story.small("small")
    story.lose(1)
    for turn in range(5):
        story.replace(first=NODES + turn)
        assert story.starts() == [("train", "node-2")]
        (pod,) = o.make_job_pods(story.job, 1, first=NODES + turn)
        story.put(pod, "node-2", phase="Running")
        story.cycle()
        assert story.kept() == []
        story.cache.delete_pod(story.cache.pods["default", pod["metadata"]["name"]])
        story.cycle()
        assert story.kept() == ["node-2"]
        story.now_s += KEPT_S // 2
    story.now_s += KEPT_S
    assert story.starts(2) == [("small", "node-2")]


def test_two_jobs_that_lose_pods_at_once_get_their_own_places_back() -> None:
    story = Story(pods=2)
    other = o.make_job("other", parallelism=2, completions=2)
    put_owners(story.cache, other)
    pods = o.make_job_pods(other, 2)
    for number, pod in enumerate(pods, start=3):
        story.put(pod, f"node-{number}", phase="Running")
    story.cycle()
    story.lose(1)
    story.cache.delete_pod(story.cache.pods["default", pods[0]["metadata"]["name"]])
    story.cycle()
    for each in o.make_job_pods(other, 1, first=2):
        story.put(each)
    story.replace(first=2)
    assert sorted(story.starts()) == [("other", "node-3"), ("train", "node-2")]


def test_the_place_is_not_the_pods_that_takes_another_gangs_name() -> None:
    """A pod in the same namespace that claims to belong to the gang gets no more than its own request."""
    story = Story()
    story.lose(1)
    story.cache.upsert_pod(cached_pod("intruder", 8, annotations={"kaiwo.ai/gang": "train"}))
    assert ("train", "node-2") not in story.starts()
    assert story.kept() == ["node-2"]


@pytest.mark.parametrize("size", ["1000000", "0", "-1", "9" * 5000])
def test_a_size_that_is_claimed_later_keeps_no_further_place(size: str) -> None:
    story = Story()
    story.small("small")
    for number, pod in enumerate(story.pods, start=1):
        story.put(pod, f"node-{number}", phase="Running", annotations={"kaiwo.ai/gang-size": size})
    story.cycle()
    story.lose(1)
    assert len(story.kept()) <= 1
    story.now_s += KEPT_S
    assert ("small", "node-2") in story.starts(2)
