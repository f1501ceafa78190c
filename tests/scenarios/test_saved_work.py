"""Who is stopped for others depends on what that would cost: work since the last checkpoint, and the restart."""

from typing import Any

from msgspec.structs import replace

from kaiwo.model.events import WorkloadChanged
from kaiwo.model.workload import Workload
from tests.worlds import World


def two_equals(**second: Any) -> World:
    """Two of equal size and priority that began together, and an hour later somebody who may have the GPUs of one."""
    world = World(nodes=1, gpus_per_node=8).queue("red").queue("blue", quota_milli=4_000)
    world.submit("first", gpus_each=4, queue="red").submit("second", gpus_each=4, queue="red", **second).decide()
    world.now_s = 3_600
    return world


def says(world: World, name: str, **fields: Any) -> Workload:
    told = replace(world.state.workloads[f"default/{name}"], **fields)
    world.tell(WorkloadChanged(told))
    return told


def who_goes(world: World) -> list[str]:
    world.submit("claim", gpus_each=4, queue="blue")
    return [each.workload for each in world.decide().evictions]


def test_of_two_equals_the_one_that_saved_lately_goes() -> None:
    for name in ("first", "second"):
        world = two_equals()
        says(world, name, checkpoint_s=3_500)
        assert who_goes(world) == [f"default/{name}"]


def test_a_restart_that_costs_more_than_was_lost_turns_it_round() -> None:
    world = two_equals(restart_s=3_499)  # 100 s since it saved, and the restart: one second less than the other lost
    says(world, "second", checkpoint_s=3_500)
    assert who_goes(world) == ["default/second"]
    world = two_equals(restart_s=3_501)
    says(world, "second", checkpoint_s=3_500)
    assert who_goes(world) == ["default/first"]


def test_a_checkpoint_alone_gives_nobody_room_so_nothing_is_tried_again() -> None:
    world = two_equals()
    world.submit("large", gpus_each=8, queue="red").decide()
    assert not world.state.backlog.try_all
    assert not world.state.backlog.to_try
    told = says(world, "first", checkpoint_s=3_500)
    assert world.state.workloads["default/first"] == told
    assert not world.state.backlog.try_all
    assert not world.state.backlog.to_try
    assert not world.state.to_requeue


def test_elastic_work_that_could_grow_is_not_tried_again_because_it_saved() -> None:
    world = World(nodes=1, gpus_per_node=8)
    world.submit("train", pods=3, gpus_each=4, minimum=1).settle()
    assert not world.state.backlog.to_try
    says(world, "train", checkpoint_s=10)
    assert not world.state.backlog.to_try
    says(world, "train", checkpoint_s=20, priority=7)  # another wish as well: that is worth a try
    assert world.state.backlog.to_try
