"""Nominated space goes to the workload that it is kept for, and to no other."""

from typing import Any

import pytest
from msgspec.structs import replace

from kaiwo.model.events import NodeChanged, NominationChanged, PodChanged, PodGone, WorkloadGone
from kaiwo.model.gpus.gpu import Gpu, Share
from kaiwo.model.node import Node, Taint
from kaiwo.model.plan import EvictionCause, Nomination
from kaiwo.model.policy import Policy
from kaiwo.model.workload import Phase
from tests.worlds import World

FULL = 196_608


def keep(world: World, name: str, index: int, node: str, gpu: str = "gpu-0") -> None:
    kept = Nomination(f"default/{name}", f"main-{index}", node, (Share(gpu, 1000, FULL),))
    world.tell(NominationChanged(kept))


def test_a_pod_takes_the_very_device_that_was_kept_for_it() -> None:
    world = World(nodes=2)
    keep(world, "owner", 0, "node-1", "gpu-5")
    world.submit("owner", gpus_each=1).decide()
    assert world.devices_of("owner") == ["node-1/gpu-5"]
    assert not world.state.nominations


def test_what_an_elastic_owner_does_not_use_yet_stays_kept_for_it() -> None:
    world = World(nodes=3, gpus_per_node=1).queue("other").running("victim", gpus=1)
    victim = world.state.pods["default/victim"]["main-0"]
    world.tell(PodChanged(replace(victim, phase=Phase.RELEASING)))
    keep(world, "owner", 0, "node-1")
    keep(world, "owner", 1, victim.node)
    world.submit("owner", pods=2, minimum=1, gpus_each=1)
    for number in range(3):
        world.submit(f"thief{number}", gpus_each=1, queue="other")
    world.settle()
    assert world.nodes_of("owner") == ["node-1"]
    assert [world.is_running(f"thief{number}") for number in range(3)] == [True, False, False]
    world.tell(PodGone("default/victim", "main-0"), WorkloadGone("default/victim")).settle()
    assert world.nodes_of("owner") == ["node-0", "node-1"]
    assert not world.state.nominations


def test_the_space_stays_kept_while_its_victim_leaves() -> None:
    world = World(gpus_per_node=2, policy=Policy(actions=("allocate",)))
    world.running("victim", gpus=1).running("rest", gpus=1)
    victim = world.state.pods["default/victim"]["main-0"]
    world.tell(PodChanged(replace(victim, phase=Phase.RELEASING)))
    keep(world, "owner", 0, "node-0", victim.devices[0].gpu)
    world.submit("owner", gpus_each=1).submit("thief", gpus_each=1, cpu_milli=1, priority=9).settle()
    assert not world.is_running("owner")
    assert not world.is_running("thief")
    world.tell(PodGone("default/victim", "main-0")).settle()
    assert world.is_running("owner")
    assert not world.is_running("thief")


def test_an_owner_that_cannot_start_where_space_is_kept_starts_elsewhere_and_gives_it_up() -> None:
    world = World(nodes=2, gpus_per_node=2)
    keep(world, "owner", 0, "node-0", "gpu-0")
    keep(world, "owner", 1, "node-1", "gpu-0")
    world.running("rest", gpus=1)  # one device stays free beside the kept ones
    world.submit("owner", pods=1, gpus_each=2).submit("thief", gpus_each=1, cpu_milli=1)
    plan = world.decide()
    assert len(world.devices_of("owner")) == 2
    assert plan.given_up == (("default/owner", "main-0"), ("default/owner", "main-1"))
    assert not world.state.nominations
    world.settle()
    assert world.is_running("thief")
    assert world.is_within_capacity()


def test_a_sick_device_gives_nothing_back() -> None:
    gpus = (Gpu("g0", "M", 1000), Gpu("g1", "M", 1000))
    world = World(nodes=0).tell(NodeChanged(Node("n", gpus=gpus))).submit("owner", gpus_each=1)
    world.tell(NominationChanged(Nomination("default/owner", "main-0", "n", (Share("g0", 1000, 1000),))))
    world.tell(NodeChanged(Node("n", gpus=(replace(gpus[0], healthy=False), gpus[1]))))
    world.settle()
    assert world.devices_of("owner") == ["n/g1"]


def test_nothing_is_kept_for_work_that_is_gone() -> None:
    world = World(nodes=1, gpus_per_node=1).submit("owner", gpus_each=1, held=True)
    keep(world, "owner", 0, "node-0")
    world.submit("other", gpus_each=1).settle()
    assert not world.is_running("other")
    world.tell(WorkloadGone("default/owner")).settle()
    assert world.is_running("other")


@pytest.mark.parametrize(
    "change",
    [{"cordoned": True}, {"ready": False}, {"taints": (Taint("maintenance"),)}],
    ids=["cordoned", "not ready", "tainted"],
)
def test_space_on_a_node_that_takes_nobody_any_more_is_given_up_and_made_anew(change: dict[str, Any]) -> None:
    world = World(nodes=4).queue("prod", quota_milli=16_000).queue("dev")
    for number in range(4):
        world.submit(f"dev{number}", gpus_each=8, queue="dev")
    world.settle()
    plan = world.submit("owner", pods=2, gpus_each=8, queue="prod").decide()
    kept = sorted(each.node for each in plan.nominations)
    assert len(kept) == 2
    world.tell(NodeChanged(replace(world.state.node_objects[kept[0]], **change)))
    for _ in range(6):  # the victims leave, one more has to go, and leaves
        world.decide()
        world.let_go()
    assert world.is_running("owner")
    assert kept[0] not in world.nodes_of("owner")
    assert not world.state.nominations


def test_space_that_its_queue_may_pay_for_no_longer_is_given_up() -> None:
    world = World(nodes=2).queue("prod", quota_milli=16_000).queue("dev")
    for number in range(2):
        world.submit(f"dev{number}", gpus_each=8, queue="dev")
    world.settle()
    world.submit("first", gpus_each=8, queue="prod", priority=1).submit("second", gpus_each=8, queue="prod")
    assert len(world.decide().nominations) == 2
    world.queue("prod", quota_milli=8_000, gpu_limit=8_000)
    for _ in range(4):
        world.decide()
        world.let_go()
    assert world.is_running("first")
    assert not world.is_running("second")
    assert sum(world.is_running(f"dev{number}") for number in range(2)) == 1  # in the space that was given up
    assert not world.state.nominations


def test_space_that_nobody_leaves_is_given_up_and_made_anew() -> None:
    """A leader wrote it down and died before it told anybody to go; or the cluster did not let them go."""
    world = World(gpus_per_node=1).running("victim", gpus=1)
    keep(world, "owner", 0, "node-0")
    world.submit("owner", gpus_each=1, priority=99)
    assert world.decide().given_up == (("default/owner", "main-0"),)
    assert [eviction.workload for eviction in world.decide().evictions] == ["default/victim"]
    assert world.decide().given_up == ()  # from now on somebody leaves
    world.let_go().settle()
    assert world.is_running("owner")


def test_a_gang_that_loses_one_nominated_node_makes_room_on_another() -> None:
    world = World(nodes=3, gpus_per_node=1).queue("theirs").queue("ours", quota_milli=2000)
    for number in range(3):
        world.submit(f"theirs-{number}", gpus_each=1, queue="theirs")
    world.settle()
    nominated = world.submit("gang", pods=2, gpus_each=1, queue="ours").decide().nominations
    lost, kept = nominated[1].node, nominated[0].node
    world.lose_node(lost).let_go().decide()
    assert [eviction.cause for eviction in world.decide().evictions] == [EvictionCause.RECLAIM]
    world.let_go().decide()
    assert world.nodes_of("gang") == sorted({"node-0", "node-1", "node-2"} - {lost})
    assert kept in world.nodes_of("gang")
