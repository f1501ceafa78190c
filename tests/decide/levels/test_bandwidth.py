"""Bandwidth needs: pods that must be able to send some amount to each other, beside what others have asked for."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from kaiwo.explain import sentence
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import PodGone, TopologyChanged, WorkloadChanged
from kaiwo.model.network.constraint import TopologyConstraint
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.obstacle import Obstacle, Reason
from kaiwo.model.policy import Policy
from kaiwo.model.request import Request
from kaiwo.model.workload import Role
from tests.decide.levels.fabrics import busy, fabric, gang, leaf_of, leaves_of, nodes_of, roles_of
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


def test_gangs_that_grow_leave_each_other_what_they_have_asked_for() -> None:
    """Both start with one pod on each node. The first grows after the second has started: it must see the second."""
    world = rated(1, 1, gpus=16)
    for name in ("one", "two"):
        role = Role(Request(gpus=1), "main", 10, minimum=2)
        spread = gang(name, (role,), bandwidth_mb_s=DATA // 4, placement_strategy="distributed")
        world.tell(WorkloadChanged(spread))
    world.decide()
    placed = [nodes_of(world, name).values() for name in ("one", "two")]
    assert all(len(set(nodes)) == 2 for nodes in placed)
    assert Counter(node for nodes in placed for node in nodes) == {"l0-n0": 4, "l1-n0": 4}


def test_what_a_gang_grew_by_is_not_left_for_another_that_grows_after_it() -> None:
    """Both have started and grow in turn; all pods inside use one port. A pod that is lost comes back there."""
    levels = (TopologyLevel("spine", "net/spine", 1_000, 1), TopologyLevel("leaf", "net/leaf", 1_000, 1))
    world = World(nodes=0).tell(TopologyChanged(Topology("fabric", levels, node_port_mb_s=1_000, node_ports=1)))
    world.node("outside", gpus=4).node("inside", gpus=1, labels={"net/spine": "s0", "net/leaf": "l0"})
    spine = TopologyConstraint(required="spine")
    first = (Role(Request(gpus=1), "gpus", 3), Role(Request(), "more", 5, minimum=1))
    other = (Role(Request(gpus=1), "gpus", 2), Role(Request(), "more", 2, minimum=1, levels=spine))
    stated = {"preferred_level": "spine", "placement_strategy": "stated", "priority": 50}
    world.tell(WorkloadChanged(gang("first", first, bandwidth_mb_s=100, **stated)))
    world.tell(WorkloadChanged(gang("other", other, bandwidth_mb_s=300)))
    for lost in ("", "gpus-0"):
        if lost:
            world.tell(PodGone("default/first", lost))
        world.decide()
        inside = {name: list(nodes_of(world, name).values()).count("inside") for name in ("first", "other")}
        assert 100 * inside["first"] + 300 * inside["other"] <= 970, inside
    assert inside == {"first": 6, "other": 1}


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


def test_work_whose_links_are_needed_is_stopped_though_its_gpus_are_not() -> None:
    """Once it was given its place back, since its GPUs were free: both ran, and the ports carried too little."""
    world = rated(2).submit("first", pods=2, gpus_each=3, bandwidth_mb_s=DATA, placement_strategy="distributed")
    world.settle()
    assert sorted(nodes_of(world, "first").values()) == ["l0-n0", "l0-n1"]
    world.submit("urgent", pods=2, gpus_each=5, bandwidth_mb_s=DATA, priority=100)
    plan = world.decide()
    assert {each.workload for each in plan.evictions} == {"default/first"}
    world.let_go().settle()
    assert world.is_running("urgent")
    assert not world.is_running("first")


def test_two_gangs_that_move_in_one_plan_do_not_ask_for_the_same_port() -> None:
    """Each loses a node to the third, and the only room left is on the other's other node."""
    world = rated(4, policy=Policy(actions=("allocate", "consolidate")))
    need = DATA * 6 // 10
    for name, nodes in (("one", ("l0-n0", "l0-n2")), ("two", ("l0-n1", "l0-n3"))):
        on = Request(gpus=3, node_rules=(NodeRule("host", "In", nodes),))
        world.submit(name, pods=2, request=on, bandwidth_mb_s=need, placement_strategy="distributed").settle()
        assert set(nodes_of(world, name).values()) == set(nodes)
        open_to_all = replace(world.state.workloads[f"default/{name}"].roles[0], request=Request(gpus=3))
        world.tell(WorkloadChanged(replace(world.state.workloads[f"default/{name}"], roles=(open_to_all,))))
    for node in ("l0-n2", "l0-n3"):
        busy(world, node, gpus=2)
    world.submit("large", pods=2, gpus_each=8)
    world.decide()
    world.let_go().settle()
    asked: Counter[str] = Counter()
    for name in ("one", "two"):
        places = list(nodes_of(world, name).values())
        asked.update({node: need * places.count(node) for node in places if len(set(places)) > 1})
    assert all(mb_s <= DATA for mb_s in asked.values()), asked


def test_a_single_pod_that_moves_frees_no_link_that_it_never_used() -> None:
    """It talks to nobody. Counted as one that leaves a link, it made room for more than the uplinks carry."""
    world = rated(4, 2, uplinks=1, policy=Policy(actions=("allocate", "consolidate")))
    for name, node in (("single", "l0-n3"), ("other", "l1-n0")):
        busy(world, node, gpus=2, name=name, bandwidth_mb_s=DATA // 2)
        on_any = replace(world.state.workloads[f"default/{name}"].roles[0], request=Request(gpus=2))
        world.tell(WorkloadChanged(replace(world.state.workloads[f"default/{name}"], roles=(on_any,))))
    busy(world, "l1-n1", gpus=4, preemptible=False)
    there = Request(gpus=8, node_rules=(NodeRule("host", "In", ("l0-n3",)),))
    world.submit("wide", request=there, priority=100)
    world.submit("large", pods=4, gpus_each=8, bandwidth_mb_s=DATA // 2)
    world.decide()
    world.let_go().settle()
    assert world.is_running("wide")  # "single" made room for it
    assert not world.is_running("large")  # its three pods in the first leaf would need one and a half uplinks


def test_a_node_without_a_leaf_does_not_free_the_others_from_their_links() -> None:
    """Its first role runs in two leaves and on a node in neither, its second has only room in the first leaf."""
    world = rated(3, 1, uplinks=1).node("nowhere", gpus=8)
    roles = roles_of(("spread", 3, 8, TopologyConstraint(strategy="distributed")), ("near", 2, 8, None))
    world.tell(WorkloadChanged(gang("train", roles, bandwidth_mb_s=DATA // 2))).decide()
    assert not world.is_running("train")


def test_of_two_equally_fast_spines_the_one_whose_links_nobody_else_may_use_is_chosen() -> None:
    """The nodes in use of the first spine send nothing now, but they may do so at any time."""
    world = rated(3, 3, 2, 2, uplinks=2)
    for node in ("l0-n0", "l1-n0"):
        busy(world, node)
    world.submit("train", pods=4, gpus_each=8, preferred_level="leaf").settle()
    assert leaves_of(world, "train") == {"l2", "l3"}


def test_a_planned_start_waits_where_others_took_its_links_meanwhile() -> None:
    """Its GPUs are kept for it, but the ports of two of its nodes carry work that came later."""
    world = rated(2, 2, uplinks=1)
    world.submit("first", pods=4, gpus_each=7, time_limit_s=100).settle()
    world.submit("planned", pods=4, gpus_each=7, time_limit_s=100, bandwidth_mb_s=DATA // 2).settle()
    assert world.state.planned_starts["default/planned"].start_s == 100
    need = DATA * 3 // 4
    world.submit("other", pods=2, gpus_each=1, time_limit_s=1000, bandwidth_mb_s=need, placement_strategy="distributed")
    world.settle()
    assert len(set(nodes_of(world, "other").values())) == 2
    world.now_s = 100
    world.finish("first").settle()
    assert not world.is_running("planned")
    world.finish("other").settle()
    assert world.is_running("planned")
