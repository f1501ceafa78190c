"""How GPUs in total are divided over pods: always all of them, and as the live cluster has room.

Each input has a story in which only it changes, and the division with it.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.decide.cycle import BUILTIN
from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import NodeFailuresSeen, ReservationChanged, TopologyChanged
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.policy import DEFAULT_POLICY
from kaiwo.model.request import Request
from kaiwo.model.reservation import Reservation, ReservationOwner
from kaiwo.plugins.builtin.replicas import FewestPods, LiveRoom
from kaiwo.plugins.contract import ReplicaNeed
from kaiwo.plugins.replica_division import divide_gpus, replicas_of
from kaiwo.snapshot.view import View
from kaiwo.snapshot.working_copy import WorkingCopy
from tests.worlds import World

RACK = "rack"


def view_of(world: World) -> View:
    return WorkingCopy(world.snapshot()).view


def shares(world: World, gpus: int, **fields: Any) -> tuple[int, ...]:
    return divide_gpus(LiveRoom(), view_of(world), ReplicaNeed(gpus, 8, queue="default", **fields))


def holding(world: World, node: str, gpus: int, **changes: Any) -> World:
    """Work of one-GPU pods on this node."""
    pinned = Request(gpus=1, node_rules=(NodeRule("node", "In", (node,)),))
    name = f"on-{node}-{len(world.state.workloads)}"
    world.submit(name, pods=gpus, request=pinned, **changes)
    world.settle()
    assert world.nodes_of(name) == [node] * gpus
    return world


def with_free(*free: int, racks: Sequence[str] = ()) -> World:
    """Nodes of eight GPUs, of which so many are free."""
    world = World(nodes=0)
    for number, left in enumerate(free):
        name = f"node-{number}"
        world.node(name, labels={"node": name, RACK: racks[number] if racks else "one"})
        if left < 8:
            holding(world, name, 8 - left)
    return world


def test_the_default_is_the_live_one() -> None:
    world = with_free(8)
    assert DEFAULT_POLICY.replica_strategy == LiveRoom.name
    need = ReplicaNeed(8, 8)
    assert replicas_of(BUILTIN.active(DEFAULT_POLICY), view_of(world), need) == (8,)


@pytest.mark.parametrize("free", [(8, 8, 8), (3, 5, 1, 8), (0,), (), (1,) * 9])
@pytest.mark.parametrize("strategy", [LiveRoom(), FewestPods()])
def test_gpus_given_equal_gpus_asked_for_every_number(strategy: Any, free: tuple[int, ...]) -> None:
    view = view_of(with_free(*free))
    for gpus in range(1, 200):
        given_gpus = divide_gpus(strategy, view, ReplicaNeed(gpus, min(gpus, 8)))
        assert sum(given_gpus) == gpus
        assert 1 <= min(given_gpus) <= max(given_gpus) <= 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=6), st.integers(1, 100_000), st.integers(1, 16))
def test_all_sizes(free: list[int], gpus: int, largest: int) -> None:
    given_gpus = divide_gpus(LiveRoom(), view_of(with_free(*free)), ReplicaNeed(gpus, largest))
    assert sum(given_gpus) == gpus
    assert max(given_gpus) <= largest


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.data())
def test_what_has_room_is_divided_so_that_it_starts(free: list[int], data: st.DataObject) -> None:
    """The scheduler itself is asked: if there are enough free GPUs, the division starts at once."""
    world = with_free(*free)
    gpus = data.draw(st.integers(1, sum(free)))
    for number, size in enumerate(shares(world, gpus)):
        world.submit(f"pod-{number}", gpus_each=size)
    world.settle()
    assert not list(world.state.backlog.queued_names())


def test_free_gpus_decide() -> None:
    assert shares(with_free(8, 8), 8) == (8,)
    assert shares(with_free(4, 4), 8) == (4, 4)


def test_fragmentation_decides() -> None:
    """Sixteen GPUs are free each time."""
    assert shares(with_free(8, 8, 0, 0), 12) == (6, 6)
    assert shares(with_free(4, 4, 4, 4), 12) == (4, 4, 4)
    assert shares(with_free(7, 5, 2, 2), 12) == (7, 5)


def test_the_model_decides() -> None:
    world = World(nodes=2).node("small-0", gpus=4, model="L40S").node("small-1", gpus=4, model="L40S")
    assert shares(world, 8, models=("MI300X",)) == (8,)
    assert shares(world, 8, models=("L40S",)) == (4, 4)


def test_no_node_is_taken_to_have_eight_gpus() -> None:
    world = World(nodes=0).node("small-0", gpus=4).running("old", 4)
    assert shares(world, 9) == (3, 3, 3), "there is no room now, and no pod is larger than a node"


def test_the_topology_decides() -> None:
    """Two nodes have four free GPUs. In one rack they are used; otherwise 4 + 2 + 2 stay together."""

    def world(*racks: str) -> World:
        found = with_free(4, 2, 2, 4, racks=racks)
        return found.tell(TopologyChanged(Topology("net", (TopologyLevel(RACK, RACK),))))

    assert shares(world("one", "one", "one", "one"), 8) == (4, 4)
    assert shares(world("one", "one", "one", "two"), 8) == (4, 2, 2)


def test_the_priority_decides() -> None:
    """Nothing is free. Important work takes four GPUs of each node; other work waits for a node of its own."""
    world = with_free(8, 8).queue("default", quota_milli=16_000)
    for name in ("node-0", "node-1"):
        holding(holding(world, name, 4, priority=1), name, 4, priority=1, preemptible=False)
    assert shares(world, 8, priority=0) == (8,)
    assert shares(world, 8, priority=5) == (4, 4)


def test_the_history_of_failures_decides() -> None:
    world = with_free(8, 4, 4)
    assert shares(world, 8) == (8,)
    world.tell(NodeFailuresSeen({"node-0": 40_000}))
    assert shares(world, 8) == (4, 4)
    assert shares(world, 12) == (8, 4), "where there is no other room, it counts"


def test_cpu_that_goes_with_a_gpu_counts() -> None:
    world = World(nodes=0)
    for name in ("one", "two"):
        world.node(name, cpu_milli=16_000)
    assert shares(world, 8) == (8,)
    assert shares(world, 8, cpu_milli=4000) == (4, 4)


def test_reserved_gpus_do_not_count() -> None:
    world = with_free(8, 4, 4)
    owner = ReservationOwner(user="ada")
    world.tell(ReservationChanged(Reservation("night", nodes=("node-0",), owner=owner)))
    assert shares(world, 8) == (4, 4)
