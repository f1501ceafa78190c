"""What keeps a gang waiting: everything that takes room from it, and whether waiting can help at all."""

from typing import Any

import pytest

from kaiwo.explain import obstacles_of, remedy, sentence
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import ReservationChanged
from kaiwo.model.obstacle import NodesExcluded, Obstacle, Reason
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.model.workload import Role
from tests.worlds import World

HOST = "kubernetes.io/hostname"


def told(world: World, name: str = "gang") -> list[Obstacle]:
    world.settle()
    return list(obstacles_of(world.state, f"default/{name}", world.policy, world.now_s))


def words(obstacle: Obstacle) -> str:
    return f"{sentence(obstacle)}: {remedy(obstacle)}"


def cordoned_world(open_nodes: int = 1, nodes: int = 8) -> World:
    world = World(nodes=0)
    for number in range(nodes):
        world.node(f"node-{number}", cordoned=number >= open_nodes, labels={HOST: f"node-{number}"})
    return world


def test_cordons_are_named_to_a_gang_of_which_one_pod_fits() -> None:
    gang, cordons = told(cordoned_world().submit("gang", pods=2, gpus_each=8))
    assert words(gang) == (
        "its 2 pods must start together, but even when empty, the nodes that it may use would fit only 1: "
        "ask for 1 pod or fewer, or allow it to use more nodes; waiting for work to end does not help"
    )
    assert (cordons.reason, cordons.facts) == (Reason.NODE_CORDONED, NodesExcluded(7, 8))


def test_a_selector_that_matches_too_few_nodes_is_named() -> None:
    world = cordoned_world(open_nodes=8)
    only = Request(0, 0, 8, node_rules=(NodeRule(HOST, "In", ("node-1",)),))
    gang, rules = told(world.submit("gang", pods=2, request=only))
    assert "even when empty, the nodes that it may use would fit only 1" in sentence(gang)
    assert (rules.reason, rules.facts) == (Reason.NODE_RULES, NodesExcluded(7, 8))


@pytest.mark.parametrize("open_nodes", [1, 2])
def test_full_nodes_that_are_cordoned_matter_where_the_open_ones_are_too_few(open_nodes: int) -> None:
    world = World(nodes=3).running("old", gpus=20)
    (part,) = [name for name in ("node-0", "node-1", "node-2") if world.nodes_of("old").count(name) == 4]
    full = sorted({"node-0", "node-1", "node-2"} - {part})
    for name in full[open_nodes - 1 :]:
        world.node(name, cordoned=True)
    reasons = [each.reason for each in told(world.submit("gang", pods=4, gpus_each=4))]
    # Two open nodes carry four pods of four GPUs once they are empty: then the cordon is not what it waits for.
    assert reasons == ([Reason.GANG, Reason.NODE_CORDONED] if open_nodes == 1 else [Reason.GANG])


def test_a_gang_that_waits_for_work_to_end_is_not_told_of_cordons_that_do_not_matter() -> None:
    world = World(nodes=2).running("old", gpus=12)
    (gang,) = told(world.submit("gang", pods=2, gpus_each=4))
    assert words(gang) == (
        "its 2 pods must start together, but there is room for only 1: "
        "ask for 1 pod or fewer, or wait for running work to end"
    )


def test_pods_of_two_roles_that_ask_for_the_same_are_counted_together() -> None:
    world = cordoned_world().submit("gang", gpus_each=8)
    each = Role(Request(0, 0, 8))
    world.submit("gang", roles=(each, Role(each.request, name="other")))
    assert Reason.NODE_CORDONED in [found.reason for found in told(world)]


def test_shares_and_cpu_are_counted_too() -> None:
    world = cordoned_world(open_nodes=1, nodes=2)
    shares = told(world.submit("shares", pods=20, gpus_each=1, fraction_milli=500), "shares")
    assert (shares[0].have, shares[1].reason) == (16, Reason.NODE_CORDONED)
    cpus = told(world.submit("cpus", pods=3, cpu_milli=100_000), "cpus")
    assert (cpus[0].have, cpus[1].reason) == (1, Reason.NODE_CORDONED)


def reserve(world: World, name: str, **changes: Any) -> World:
    return world.tell(ReservationChanged(Reservation(name, **changes)))


def test_a_reservation_that_begins_later_does_not_make_the_cluster_small() -> None:
    world = reserve(World(nodes=8), "later", gpus=8, start_s=7_200, end_s=14_400)
    obstacles = told(world.submit("gang", pods=2, gpus_each=2, reservation="later"))
    assert words(obstacles[0]) == (
        "its 2 pods must start together, but outside reserved GPUs, even an empty cluster would fit none: "
        "check kaiwo reservations; waiting for work to end does not help"
    )
    assert obstacles[1].reason is Reason.RESERVATION
    assert not any("whole cluster" in sentence(each) for each in obstacles)


def test_a_reservation_that_is_gone_does_not_make_the_cluster_small() -> None:
    obstacles = told(World(nodes=8).submit("gang", pods=2, gpus_each=2, reservation="gone"))
    assert [each.reason for each in obstacles] == [Reason.GANG, Reason.RESERVATION]
    assert "whole cluster" not in sentence(obstacles[0])


def test_strangers_to_a_reservation_are_not_told_that_the_cluster_is_small() -> None:
    world = reserve(World(nodes=2).queue("lab"), "night", gpus=12, owner=ReservationOwner(queue="lab"))
    obstacles = told(world.submit("gang", pods=2, gpus_each=4))
    assert "outside reserved GPUs, even an empty cluster would fit only 1" in sentence(obstacles[0])
    assert Reason.RESERVED in [each.reason for each in obstacles]


def test_a_reservation_too_small_for_the_gang_that_names_it_is_told() -> None:
    world = reserve(World(nodes=2), "small", gpus=8)
    (gang,) = told(world.submit("gang", pods=3, gpus_each=4, reservation="small"))
    assert "outside reserved GPUs, even an empty cluster would fit only 2" in sentence(gang)


def test_a_gang_larger_than_the_whole_cluster_is_still_told_so() -> None:
    world = reserve(World(nodes=2), "later", gpus=8, start_s=7_200, end_s=14_400)
    obstacles = told(world.submit("gang", pods=3, gpus_each=8, reservation="later"))
    assert "even an empty cluster has GPUs for only 2" in sentence(obstacles[0])


def test_where_cordons_and_a_reservation_take_room_the_tighter_one_is_told() -> None:
    world = cordoned_world(open_nodes=1, nodes=2).queue("lab")
    reserve(world, "night", nodes=("node-0",), owner=ReservationOwner(queue="lab"))
    obstacles = told(world.submit("gang", pods=2, gpus_each=8))
    assert "outside reserved GPUs, even an empty cluster would fit none" in sentence(obstacles[0])
    assert Reason.RESERVED in [each.reason for each in obstacles]
