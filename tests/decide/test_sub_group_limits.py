"""Of several ways in which sub-groups may start, one that the queue's limits allow is enough."""

from kaiwo.model.events import QueueChanged, WorkloadChanged
from kaiwo.model.queue import Queue, QueueAmounts
from kaiwo.model.request import Request
from kaiwo.model.workload import Role, SubGroup, Workload
from tests.worlds import World

EITHER = (SubGroup("", minimum=1),)


def submit(world: World, *roles: Role) -> World:
    world.tell(WorkloadChanged(Workload("default/mine", roles, groups=EITHER))).settle()
    return world


def test_memory_that_costs_more_than_the_limit_does_not_keep_whole_gpus_from_starting() -> None:
    world = World(gpus_per_node=4).queue("default", gpu_limit=1_000)
    submit(world, Role(Request(gpus=1)), Role(Request(gpus=2, gpu_mib=90_000), "side", count=2))
    assert list(world.state.pods["default/mine"]) == ["main-0"]


def test_cpus_beyond_the_limit_do_not_keep_gpus_from_starting() -> None:
    world = World(gpus_per_node=4).tell(QueueChanged(Queue("default", cpu=QueueAmounts(limit=10_000))))
    submit(world, Role(Request(1_000, gpus=1)), Role(Request(100_000), "side"))
    assert list(world.state.pods["default/mine"]) == ["main-0"]
