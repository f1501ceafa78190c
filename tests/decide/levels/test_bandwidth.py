"""Bandwidth needs: pods that must be able to send some amount to each other, beside what others have asked for."""

from typing import Any

from kaiwo.explain import sentence
from kaiwo.model.events import TopologyChanged
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.obstacle import Obstacle, Reason
from tests.decide.levels.fabrics import busy, fabric, leaf_of, leaves_of, nodes_of
from tests.worlds import World

PORT, DATA = 50_000, 48_500  # 400 Gbit/s, and what is left of it for data


def rated(*leaves: int, uplinks: int = 2, ports: int = 1, **more: Any) -> World:
    """Each leaf has this many links up, each as fast as a port."""
    levels = (TopologyLevel("spine", "net/spine"), TopologyLevel("leaf", "net/leaf", PORT, uplinks))
    topology = Topology("fabric", levels, node_port_mb_s=PORT, node_ports=ports)
    return fabric(*leaves, **more).tell(TopologyChanged(topology))


def bandwidth_obstacle(world: World, name: str) -> Obstacle:
    return next(each for each in world.obstacles(name) if each.reason is Reason.BANDWIDTH)


def test_a_gang_that_fits_into_a_leaf_uses_no_uplinks() -> None:
    world = rated(4, 4, uplinks=1).submit("train", pods=4, gpus_each=8, bandwidth_mb_s=DATA)
    world.settle()
    assert len(leaves_of(world, "train")) == 1


def test_a_gang_over_two_leaves_takes_only_as_many_nodes_as_the_uplinks_carry() -> None:
    """Two links up: at the full rate of a port, two nodes of each leaf."""
    world = rated(3, 3, uplinks=2).submit("train", pods=4, gpus_each=8, bandwidth_mb_s=DATA)
    world.settle()
    leaves = [leaf_of(node) for node in nodes_of(world, "train").values()]
    assert sorted(leaves) == ["l0", "l0", "l1", "l1"]


def test_a_gang_waits_when_the_uplinks_carry_too_little_and_is_told_so_in_numbers() -> None:
    world = rated(3, 3, uplinks=1).submit("train", pods=4, gpus_each=8, bandwidth_mb_s=DATA)
    world.decide()
    assert not world.is_running("train")
    found = bandwidth_obstacle(world, "train")
    assert (found.need, found.have) == (4, 3)  # all three of a leaf
    assert sentence(found) == (
        "its 4 pods need 48.5 GB/s each to the others, and the links have that much left for only 3"
    )


def test_less_bandwidth_would_do() -> None:
    world = rated(3, 3, uplinks=1).submit("train", pods=4, gpus_each=8, bandwidth_mb_s=DATA // 2)
    world.settle()
    assert world.is_running("train")


def test_what_others_have_asked_for_is_not_left() -> None:
    """The first gang takes both uplinks of both leaves; the second starts when the first has ended."""
    world = rated(4, 4, uplinks=2)
    busy(world, "l0-n3")
    busy(world, "l1-n3")
    world.submit("first", pods=4, gpus_each=8, bandwidth_mb_s=DATA).settle()
    assert len(leaves_of(world, "first")) == 2
    world.submit("second", pods=2, gpus_each=8, bandwidth_mb_s=10_000)
    world.decide()
    assert not world.is_running("second")
    assert bandwidth_obstacle(world, "second").have == 1
    world.finish("first").settle()
    assert world.is_running("second")


def test_two_gangs_of_one_cycle_do_not_ask_for_the_same_link() -> None:
    world = rated(1, 1, uplinks=1, gpus=16)
    for name in ("one", "two"):
        world.submit(name, pods=2, gpus_each=8, bandwidth_mb_s=DATA, placement_strategy="distributed")
    world.decide()
    assert sorted(world.is_running(name) for name in ("one", "two")) == [False, True]


def test_more_than_the_ports_of_a_node_carry_never_starts() -> None:
    world = rated(4).submit("train", pods=2, gpus_each=8, bandwidth_mb_s=DATA + 1)
    world.decide()
    found = bandwidth_obstacle(world, "train")
    assert sentence(found) == "each of its pods needs 48.5 GB/s, and the ports of a node carry 48.5 GB/s at most"


def test_pods_on_one_node_need_no_ports() -> None:
    world = rated(1, gpus=8).submit("train", pods=2, gpus_each=4, bandwidth_mb_s=10 * DATA)
    world.settle()
    assert world.is_running("train")


def test_pods_that_share_a_node_share_its_ports() -> None:
    world = rated(4, gpus=8).submit("train", pods=4, gpus_each=4, bandwidth_mb_s=DATA)
    world.settle()
    assert len(set(nodes_of(world, "train").values())) == 4


def test_where_no_rate_is_known_nothing_is_refused() -> None:
    world = fabric(2, 2).submit("train", pods=4, gpus_each=8, bandwidth_mb_s=DATA)
    world.settle()
    assert world.is_running("train")


def test_a_gang_grows_only_as_far_as_the_links_carry_it() -> None:
    world = rated(2, 2, uplinks=1).submit("train", pods=4, minimum=2, gpus_each=8, bandwidth_mb_s=DATA)
    world.settle()
    assert len(leaves_of(world, "train")) == 1
    assert len(nodes_of(world, "train")) == 2
