"""Where the charge depends on the device: limits, quotas and shares mean the same as for whole GPUs."""

import pytest
from msgspec.structs import replace

from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.gpus.gpu_models import GPU_MODELS
from kaiwo.model.gpus.partition_modes import Mode, partition_gpu
from kaiwo.model.queue import Fairness, ReclaimStrategy
from kaiwo.model.request import Request
from kaiwo.queues.current_shares import current_shares
from kaiwo.snapshot.queue_table import GPU
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

GIB = 1024


def in_cpx(gpus: int, model: str = "MI300X") -> World:
    """One node whose GPUs are all cut."""
    world = World(nodes=1, gpus_per_node=0)
    whole = [Gpu(f"gpu-{number}", model, GPU_MODELS[model].memory_mib) for number in range(gpus)]
    devices = tuple(part for gpu in whole for part in partition_gpu(gpu, Mode("CPX", "NPS1")))
    return world.tell(NodeChanged(replace(world.state.node_objects["node-0"], gpus=devices)))


def cpx(parts: int = 1) -> Request:
    return Request(gpus=parts, partition="CPX")


def used_milli(world: World, queue: str) -> int:
    now = current_shares(WorkingCopy(world.snapshot()).view)
    return int(now.used[now.queues.row[queue], GPU])


@pytest.mark.parametrize("parts", [1, 4, 8])
def test_growth_by_partitions_keeps_to_the_limit(parts: int) -> None:
    world = in_cpx(4).queue("small", gpu_limit=1500, quota_milli=1500)
    world.submit("elastic", pods=8, minimum=1, request=cpx(parts), queue="small").settle()
    assert used_milli(world, "small") == min(8, 1500 // (125 * parts)) * 125 * parts


@pytest.mark.parametrize("model", ["MI300X", "MI308X", "MI300A"])
def test_a_queue_that_is_owed_partitions_takes_them_back(model: str) -> None:
    world = in_cpx(2, model).queue("guest").queue("owed", quota_milli=2000)
    for number in range(16):
        world.submit(f"guest{number}", request=cpx(), queue="guest")
    world.settle()
    for number in range(3):
        world.submit(f"owed{number}", request=cpx(), queue="owed")
    for _ in range(10):
        world.decide()
        world.let_go()
    assert all(world.is_running(f"owed{number}") for number in range(3))


@pytest.mark.parametrize("strategy", [ReclaimStrategy.CONSERVATIVE, ReclaimStrategy.AGGRESSIVE])
def test_memory_on_a_small_device_is_not_taken_back_for_the_price_of_a_large_one(strategy: ReclaimStrategy) -> None:
    world = World(nodes=0).node("large", gpus=1, model="MI325X").node("small", gpus=2, model="MI210")
    world.queue("rich").queue("fixed", quota_milli=1000)
    world.queue("careful", quota_milli=300, fairness=Fairness(reclaim_strategy=strategy))
    world.submit("holds", gpus_each=1, models=("MI325X",), queue="fixed", preemptible=False).settle()
    for number in range(2):
        world.submit(f"rich{number}", gpus_each=1, queue="rich")
    world.settle()
    world.submit("asks", memory_mib=60 * GIB, queue="careful")  # 234 milli of the large one, 937 of a small one
    for _ in range(5):
        assert not world.decide().evictions
    assert not world.is_running("asks")
