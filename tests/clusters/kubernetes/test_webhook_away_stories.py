"""Stories of tenants whose pods no webhook has seen: the scheduler itself holds to every queue's list and limit."""

from typing import Any

import pytest

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.runtime.loop.cycle_runner import CycleRunner
from tests.clusters.kubernetes.api_objects import cache_with_nodes, cached_pod

QUEUE = "kaiwo.ai/queue"
LAB = Queue("lab", gpu=QueueAmounts(limit=8000), namespaces=("default",))
VISION = Queue("vision", namespaces=("vision",))
ADA = Queue("ada", users=("ada",))
TREE = (LAB, VISION, ADA, Queue("org", namespaces=("org",)), Queue("team", parent="org"))


class Tenant:
    """Pods of the namespace `default`, beside queues of which one lists it, with room for 16 GPUs."""

    def __init__(self, *queues: Queue) -> None:
        self.cache: ClusterCache = cache_with_nodes(2)
        for queue in queues or TREE:
            self.cache.queue_cache.upsert(queue)
        self.cache.flush(1000)
        self.scheduler = CycleRunner(None, DEFAULT_POLICY, BUILTIN)
        self.scheduler.state.patch(self.cache.whole_state())

    def pod(self, name: str, gpus: int = 8, **more: Any) -> None:
        self.cache.upsert_pod(cached_pod(name, gpus, **more))

    def starts(self) -> list[str]:
        self.scheduler.state.patch(self.cache.flush(1000))
        decision = self.scheduler.cycle(1000)
        return [] if decision is None else sorted(each.workload.partition("/")[2] for each in decision.plan.starts)

    def milli_of(self, queue: str) -> int:
        self.scheduler.state.patch(self.cache.flush(1000))
        state = self.scheduler.state
        return sum(
            share.milli
            for name, pods in state.pods.items() if state.workloads[name].queue == queue
            for pod in pods.values() for share in pod.devices
        )  # fmt: skip


def said(queue: str) -> dict[str, Any]:
    return {"annotations": {QUEUE: queue}}


def test_what_names_no_queue_keeps_to_the_limit_of_its_namespaces_queue() -> None:
    tenant = Tenant()
    for name in ("a", "b"):
        tenant.pod(name)
    assert len(tenant.starts()) == 1


@pytest.mark.parametrize("queue", ["vision", "ada", "team", "org", "nowhere", "../root", "", "lab/", "LAB", "l" * 5000])
def test_no_queue_of_others_and_no_nonsense_is_a_way_around_it(queue: str) -> None:
    tenant = Tenant()
    tenant.pod("a")
    tenant.pod("b", **said(queue))
    tenant.starts()
    assert tenant.milli_of("lab") == 8000
    assert not any(tenant.milli_of(each.name) for each in TREE if each != LAB)


@pytest.mark.parametrize("key", ["kaiwo.silogen.ai/queue", "kai.scheduler/queue", "kueue.x-k8s.io/queue-name"])
@pytest.mark.parametrize("where", ["annotations", "labels"])
def test_names_of_other_schedulers_open_no_queue_of_others(key: str, where: str) -> None:
    tenant = Tenant()
    tenant.pod("a", **{where: {key: "vision"}})
    tenant.starts()
    assert not tenant.milli_of("vision")


def test_a_gang_of_which_some_pods_name_another_queue_is_in_one() -> None:
    tenant = Tenant()
    gang = {"kaiwo.ai/gang": "train", "kaiwo.ai/gang-size": "2"}
    tenant.pod("a", annotations=gang)
    tenant.pod("b", annotations=gang | {QUEUE: "vision"})
    assert tenant.starts() == [], "two pods with 8 GPUs are more than the limit of the queue, and vision takes none"


def test_a_queue_that_is_made_later_counts_what_runs_and_stops_nobody() -> None:
    tenant = Tenant(VISION)
    for name, node in (("a", "node-1"), ("b", "node-2")):
        tenant.pod(name, node=node, phase="Running", annotations={"kaiwo.ai/granted-devices": ""})
    tenant.starts()
    tenant.cache.queue_cache.upsert(LAB)
    tenant.pod("c", 1)
    assert tenant.starts() == []
    assert tenant.milli_of("lab") == 16_000


def test_a_queue_that_goes_leaves_its_work_under_no_other_one_that_lists_somebody() -> None:
    tenant = Tenant()
    tenant.pod("a", **said("lab"))
    tenant.cache.queue_cache.delete("lab")
    tenant.starts()
    assert not any(tenant.milli_of(queue) for queue in ("vision", "ada", "org", "team"))
