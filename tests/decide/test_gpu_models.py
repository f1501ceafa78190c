"""Limits and quotas of one GPU model: kept at every level, and work goes to another model where it may."""

from typing import Any

from kaiwo.explain import why
from kaiwo.model.events import NodeChanged, PodChanged, QueueChanged
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node
from kaiwo.model.obstacle import Reason
from kaiwo.model.queue import UNLIMITED, GpuModelAmounts, Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Phase, Pod
from kaiwo.queues.current_shares import current_shares
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World, audit

OLD, NEW = "MI210", "MI300X"


def two_models(*queues: Queue) -> World:
    """A node of four old GPUs and a node of four new ones; the new ones come first in the order of names."""
    world = World(nodes=0)
    for name, model, mib in (("a-new", NEW, 196_608), ("b-old", OLD, 65_536)):
        gpus = tuple(Gpu(f"gpu-{at}", model, mib) for at in range(4))
        world.tell(NodeChanged(Node(name, cpu_milli=64_000, memory_mib=262_144, gpus=gpus)))
    return world.tell(*(QueueChanged(queue) for queue in queues))


def lab(limit: int = UNLIMITED, quota: int = UNLIMITED, name: str = "lab", **changes: Any) -> Queue:
    return Queue(name, gpu_models={NEW: GpuModelAmounts(quota, limit)}, **changes)


def models(world: World, prefix: str = "") -> list[str]:
    nodes = [pod.node for name, pods in world.state.pods.items() if prefix in name for pod in pods.values()]
    return sorted(NEW if node == "a-new" else OLD for node in nodes)


def test_a_limit_of_one_model_sends_the_rest_to_another() -> None:
    world = two_models(lab(limit=2_000))
    for number in range(5):
        world.submit(f"w{number}", gpus_each=1, queue="lab")
    world.settle()
    assert models(world) == [OLD, OLD, OLD, NEW, NEW]
    assert not audit(world.state)


def test_a_gang_spreads_over_models_as_its_queue_may() -> None:
    world = two_models(lab(limit=2_000))
    world.submit("gang", pods=6, gpus_each=1, queue="lab").settle()
    assert models(world) == [OLD] * 4 + [NEW] * 2
    world.submit("more", gpus_each=1, queue="lab").settle()
    assert not world.is_running("more")


def test_who_wants_that_model_alone_waits_and_why_names_the_limit() -> None:
    world = two_models(lab(limit=2_000))
    for number in range(3):
        world.submit(f"w{number}", gpus_each=1, queue="lab", models=(NEW,))
    world.settle()
    assert models(world) == [NEW, NEW]
    answer = why(world.state, "default/w2", world.policy, world.now_s)
    limit = answer.obstacles[0]
    assert (limit.obstacle.reason, limit.obstacle.need, limit.obstacle.have) == (Reason.QUEUE_LIMIT, 1_000, 0)
    assert limit.sentence == f"it needs 1 GPU, but queue 'lab' has 0 GPUs left of its {NEW} limit"


def test_where_there_is_no_other_model_the_limit_is_named_to_everybody() -> None:
    world = World().tell(QueueChanged(lab(limit=2_000)))
    world.submit("big", gpus_each=3, queue="lab").settle()
    answer = why(world.state, "default/big", world.policy, world.now_s)
    assert [each.obstacle.reason for each in answer.obstacles] == [Reason.QUEUE_LIMIT]
    assert answer.obstacles[0].sentence == f"it needs 3 GPUs, but queue 'lab' has 2 GPUs left of its {NEW} limit"


def test_a_limit_above_counts_for_all_below_it() -> None:
    world = two_models(lab(limit=1_000, name="org"), Queue("x", "org"), Queue("y", "org"))
    for queue in ("x", "y"):
        world.submit(f"{queue}-new", gpus_each=1, queue=queue, models=(NEW,))
    world.settle()
    assert models(world) == [NEW]


def test_work_that_may_not_be_preempted_stays_inside_the_quota_of_its_model() -> None:
    world = two_models(lab(quota=1_000, gpu=QueueAmounts(quota=8_000)))
    for number in range(2):
        world.submit(f"w{number}", gpus_each=1, queue="lab", models=(NEW,), preemptible=False)
    world.settle()
    assert models(world) == [NEW]
    world.submit("loose", gpus_each=1, queue="lab", models=(NEW,)).settle()
    assert models(world) == [NEW, NEW]


def test_shares_of_a_gpu_and_memory_count_by_what_they_hold() -> None:
    world = two_models(lab(limit=1_000))
    for number in range(3):
        world.submit(f"half{number}", gpus_each=1, fraction_milli=500, queue="lab", models=(NEW,))
    world.settle()
    assert models(world) == [NEW, NEW]
    world = two_models(lab(limit=1_000))
    for number in range(3):
        request = Request(gpus=1, gpu_mib=98_304, gpu_models=(NEW,))
        world.submit(f"mib{number}", request=request, queue="lab")
    world.settle()
    assert models(world) == [NEW, NEW]


def test_memory_that_is_too_dear_on_one_model_goes_to_another() -> None:
    world = two_models(lab(limit=700))
    for number in range(3):
        world.submit(
            f"mib{number}", request=Request(gpus=1, gpu_mib=60_000), queue="lab"
        )  # 305 of one, 915 of the other
    world.settle()
    assert models(world) == [OLD, NEW, NEW]


def test_what_ends_gives_the_model_back() -> None:
    world = two_models(lab(limit=1_000))
    world.submit("first", gpus_each=1, queue="lab", models=(NEW,)).settle()
    world.submit("second", gpus_each=1, queue="lab", models=(NEW,)).settle()
    assert not world.is_running("second")
    world.finish("first").settle()
    assert world.is_running("second")


def test_what_runs_counts_when_the_limit_comes_later() -> None:
    world = two_models(Queue("lab"))
    for number in range(2):
        world.submit(f"w{number}", gpus_each=1, queue="lab", models=(NEW,))
    world.settle()
    world.tell(QueueChanged(lab(limit=2_000))).submit("more", gpus_each=1, queue="lab", models=(NEW,)).settle()
    assert not world.is_running("more")
    table = world.state.queues
    assert table.all_used[table.row["lab"]].tolist() == [2_000, 0, 0, 2_000]


def test_a_pod_that_leaves_is_off_the_books_of_its_model_too() -> None:
    world = two_models(lab(limit=1_000))
    pod = Pod("default/first", "main-0", "a-new", Phase.RUNNING, (Share("gpu-0", 1_000, 196_608),))
    world.submit("first", gpus_each=1, queue="lab", models=(NEW,)).tell(PodChanged(pod))
    assert world.snapshot().read().queues.all_used[:, 3].max() == 1_000
    world.finish("first")
    assert world.snapshot().read().queues.all_used[:, 3].max() == 0


def test_a_queue_takes_its_quota_of_a_model_back() -> None:
    world = two_models(lab(quota=2_000, gpu=QueueAmounts(quota=2_000)), Queue("rich"))
    for number in range(8):
        world.submit(f"rich{number}", gpus_each=1, queue="rich")
    world.settle()
    for number in range(2):
        world.submit(f"owed{number}", gpus_each=1, queue="lab", models=(NEW,), submitted_s=9)
    world.settle()
    assert models(world, "owed") == [NEW, NEW]
    now = current_shares(WorkingCopy(world.snapshot()).view)
    assert now.used.shape[1] == now.fair.shape[1] == 4
