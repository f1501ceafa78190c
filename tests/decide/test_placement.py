"""Stories of where pods go and which devices they get."""

import pytest
from msgspec.structs import replace

from kaiwo.explain import obstacles_of, remedy, sentence
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.node import Node, Taint
from kaiwo.model.obstacle import Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request, Toleration
from tests.worlds import World


def test_a_gang_never_starts_halfway() -> None:
    world = World(nodes=2).running("old", gpus=12)
    plan = world.submit("gang", pods=2, gpus_each=4).decide()
    assert plan.starts == ()
    assert world.why("gang") == [Reason.GANG]


def test_a_gang_starts_whole_when_the_last_place_is_free() -> None:
    world = World(nodes=2).running("old", gpus=12)
    world.submit("gang", pods=2, gpus_each=4).settle()
    world.finish("old").settle()
    assert len(world.nodes_of("gang")) == 2


def test_work_fills_the_fullest_node_first() -> None:
    world = World(nodes=3).running("old", gpus=5)
    (used,) = set(world.nodes_of("old"))
    world.submit("new", gpus_each=2).decide()
    assert world.nodes_of("new") == [used]


def test_spreading_uses_the_emptiest_node() -> None:
    world = World(nodes=3, policy=Policy(placement="spread"))
    world.submit("three", pods=3, gpus_each=1).decide()
    assert world.nodes_of("three") == ["node-0", "node-1", "node-2"]


def test_equal_nodes_fall_to_their_names() -> None:
    world = World(nodes=0)
    for name in ("node-b", "node-c", "node-a"):
        world.node(name)
    world.submit("one", gpus_each=1).decide()
    assert world.devices_of("one") == ["node-a/gpu-0"]


def test_two_halves_share_a_device_and_leave_the_others_whole() -> None:
    world = World(gpus_per_node=2)
    world.submit("left", fraction_milli=500).submit("right", fraction_milli=500).settle()
    assert world.devices_of("left") == world.devices_of("right") == ["node-0/gpu-0"]
    world.submit("whole", gpus_each=1).settle()
    assert world.devices_of("whole") == ["node-0/gpu-1"]


def test_a_fraction_gets_its_part_of_the_memory_and_no_more() -> None:
    world = World(gpus_per_node=1).submit("third", fraction_milli=330)
    (start,) = world.decide().starts
    assert (start.devices[0].milli, start.devices[0].mib) == (330, 330 * 196_608 // 1000)


def test_23_of_24_requests_of_2000_mib_fit_on_46068_mib() -> None:
    world = World(nodes=0)
    world.tell(NodeChanged(Node("node-0", gpus=(Gpu("gpu-0", "L40S", 46_068),))))
    for number in range(24):
        world.submit(f"m{number:02d}", memory_mib=2_000)
    world.settle()
    assert sum(world.is_running(f"m{number:02d}") for number in range(24)) == 23
    assert world.why("m23") == [Reason.NOT_ENOUGH_FREE_GPU_MEMORY]


def test_memory_and_fractions_are_coupled_on_one_device() -> None:
    world = World(gpus_per_node=1)
    world.submit("memory", memory_mib=150_000).settle()
    world.submit("half", fraction_milli=500).settle()
    assert not world.is_running("half")
    world.submit("fifth", fraction_milli=200).settle()
    assert world.is_running("fifth")


def test_a_fraction_on_two_devices_takes_two_distinct_ones() -> None:
    world = World(gpus_per_node=2).submit("pair", fraction_milli=300, gpus_each=2)
    world.settle()
    assert world.devices_of("pair") == ["node-0/gpu-0", "node-0/gpu-1"]


@pytest.mark.parametrize(
    ("strategy", "device"),
    [
        ("first-fit", "gpu-0"),
        ("best-fit", "gpu-1"),
        ("worst-fit", "gpu-2"),
        ("round-robin", "gpu-3"),
        ("load-balanced", "gpu-2"),
        ("fragmentation-aware", "gpu-1"),
    ],
)
def test_each_strategy_chooses_its_device(strategy: str, device: str) -> None:
    """gpu-0 is 30 % used, gpu-1 60 %, gpu-3 10 %; gpu-2 is empty."""
    world = World(gpus_per_node=4, policy=Policy(gpu_strategy=strategy))
    for number, milli in enumerate((300, 600, 100)):
        hole = {0: "gpu-0", 1: "gpu-1", 2: "gpu-3"}[number]
        _put(world, f"w{number}", hole, milli)
    world.submit("new", fraction_milli=200).settle()
    assert world.devices_of("new") == [f"node-0/{device}"]


def _put(world: World, name: str, device: str, milli: int) -> None:
    from kaiwo.model.events import PodChanged
    from kaiwo.model.gpus.gpu import Share
    from kaiwo.model.workload import Pod

    share = Share(device, milli, milli * 196_608 // 1000)
    world.tell(PodChanged(Pod(f"default/{name}", "main-0", "node-0", devices=(share,))))


def test_work_without_gpus_spares_the_nodes_with_gpus() -> None:
    world = World(nodes=1).node("plain", gpus=0)
    world.submit("cpu", cpu_milli=4_000).settle()
    assert world.nodes_of("cpu") == ["plain"]


def test_node_rules_taints_and_cordons_are_obeyed() -> None:
    world = World(nodes=0)
    world.node("a", labels={"disk": "hdd"})
    world.node("b", labels={"disk": "ssd"}, taints=(Taint("team", "x"),))
    world.node("c", labels={"disk": "ssd"}, cordoned=True)
    wants_ssd = Request(gpus=1, node_rules=(NodeRule("disk", "In", ("ssd",)),))
    world.submit("plain", request=wants_ssd).settle()
    assert set(world.why("plain")) == {Reason.NODE_RULES, Reason.NODE_TAINTED, Reason.NODE_CORDONED}
    world.submit("tolerant", request=replace(wants_ssd, tolerations=(Toleration("team", value="x"),))).settle()
    assert world.nodes_of("tolerant") == ["b"]


def test_a_broken_device_is_not_given_out() -> None:
    world = World(nodes=0)
    gpus = (Gpu("gpu-0", "MI300X", 196_608, healthy=False, reason="ECC"), Gpu("gpu-1", "MI300X", 196_608))
    world.tell(NodeChanged(Node("node-0", gpus=gpus)))
    world.submit("one", gpus_each=1).submit("two", gpus_each=1).settle()
    assert world.devices_of("one") == ["node-0/gpu-1"]
    assert not world.is_running("two")


def test_models_are_kept_apart() -> None:
    world = World(nodes=1).node("old", gpus=4, model="MI210")
    world.submit("wants-old", gpus_each=4, models=("MI210",)).settle()
    assert world.nodes_of("wants-old") == ["old"]
    world.submit("wants-none", gpus_each=1, models=("H200",)).settle()
    assert world.why("wants-none") == [Reason.GPU_MODEL]


def test_an_elastic_gang_takes_its_minimum_and_grows() -> None:
    world = World(gpus_per_node=8).running("old", gpus=5)
    world.submit("elastic", pods=6, minimum=2, gpus_each=1).settle()
    assert len(world.nodes_of("elastic")) == 3
    world.finish("old").settle()
    assert len(world.nodes_of("elastic")) == 6


def test_extended_resources_count() -> None:
    world = World(nodes=0).node("nic", gpus=1, extended={"example.com/nic": 1})
    wants = Request(extended=(("example.com/nic", 1),))
    world.submit("first", request=wants).submit("second", request=wants).settle()
    assert world.is_running("first")
    assert world.why("second") == [Reason.NOT_ENOUGH_EXTENDED]


def test_a_resource_that_no_node_offers_is_said_to_be_nowhere() -> None:
    world = World().submit("typo", request=Request(extended=(("example.com/fpga", 2),)))
    world.settle()
    (obstacle,) = obstacles_of(world.state, "default/typo", world.policy, world.now_s)
    assert sentence(obstacle) == "it needs 2 of example.com/fpga, but no node in this cluster offers it"
    assert "waiting does not help" in remedy(obstacle)


def test_pods_with_several_roles_start_together() -> None:
    from kaiwo.model.events import WorkloadChanged
    from kaiwo.model.workload import Role, Workload

    roles = (Role(Request(cpu_milli=1_000), "leader"), Role(Request(gpus=8), "worker", 2))
    world = World(nodes=1).tell(WorkloadChanged(Workload("default/job", roles)))
    assert world.decide().starts == ()
    world.node("node-9").settle()
    assert sorted(world.state.pods["default/job"]) == ["leader-0", "worker-0", "worker-1"]
