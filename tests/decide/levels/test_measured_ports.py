"""Ports that agents measure: one that is down is a dead link, and a busy link has a smaller share."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.affinity import NodeRule
from kaiwo.model.events import PortsMeasured, TopologyChanged
from kaiwo.model.network.port import NetworkPort
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.plan import encode_plan
from kaiwo.model.recovery import FailureKind
from kaiwo.model.request import Request
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.network.measured_ports import live_topology
from kaiwo.topology.collective_time import bus_bandwidth
from kaiwo.topology.link_use import ActiveNodes, busy_permille, everywhere
from kaiwo.topology.network_rates import network_rates
from tests.decide.levels.fabrics import fabric, nodes_of
from tests.decide.recovery.failures import is_whole, recover
from tests.worlds import World

NODES = tuple(f"n{leaf}{at}" for leaf in range(3) for at in range(3))


def railed(**changes: object) -> Topology:
    """Three leaves of three nodes with two rails; every leaf has three links up."""
    leaves = [Domain(f"l{leaf}-r{rail}", "leaf") for leaf in range(3) for rail in range(2)]
    ports = [
        Attachment(node, f"l{node[1]}-r{rail}", rail, 50_000, devices=(f"mlx5_{rail}",))
        for node in NODES
        for rail in range(2)
    ]
    links = [NetworkLink(leaf.name, "spine-1", 50_000, 3) for leaf in leaves]
    return Topology("fabric", (TopologyLevel("leaf"),), tuple(leaves), tuple(ports), tuple(links), **changes)  # type: ignore[arg-type]


def ports_of(*states: bool, used: int = -1) -> tuple[NetworkPort, ...]:
    return tuple(NetworkPort(f"mlx5_{at}", 1, up, 50_000, used if up else 0) for at, up in enumerate(states))


def world_of(topology: Topology) -> World:
    world = World(nodes=0).tell(TopologyChanged(topology))
    for node in NODES:
        world.node(node, gpus=8)
    return world


def port_rates_of(world: World, node: str) -> list[int]:
    world.state.refresh_tables()
    table = world.state.nodes.topologies.by_name["fabric"]
    rates = network_rates(table, world.state.nodes.nodes)
    return [int(rail.port_mb_s[world.state.nodes.row[node]]) for rail in rates.rails]


def test_a_port_that_is_down_is_dead_on_its_rail() -> None:
    world = world_of(railed())
    world.tell(PortsMeasured({"n00": ports_of(True, False)}))
    assert port_rates_of(world, "n00") == [48_500, 0]
    assert port_rates_of(world, "n01") == [48_500, 48_500]
    world.tell(PortsMeasured({"n00": ports_of(True, True)}))
    assert port_rates_of(world, "n00") == [48_500, 48_500]


def test_a_new_dump_does_not_bring_a_dead_port_back() -> None:
    world = world_of(railed()).tell(PortsMeasured({"n00": ports_of(True, False)}))
    world.tell(TopologyChanged(railed(source="read again")))
    assert port_rates_of(world, "n00") == [48_500, 0]


def test_ports_are_matched_by_device_or_in_order_or_not_at_all() -> None:
    named, ports = railed(), {"n00": ports_of(False, True)}
    unnamed = replace(named, attachments=tuple(replace(each, devices=()) for each in named.attachments))
    for topology in (named, unnamed):
        found = live_topology(topology, ports, NODES)
        assert [each.dead for each in found.attachments if each.node == "n00"] == [1, 0]
    more = {"n00": (*ports["n00"], NetworkPort("storage_0", 1, False, 25_000, 0))}
    assert [each.dead for each in live_topology(named, more, NODES).attachments if each.node == "n00"] == [1, 0]
    assert live_topology(unnamed, more, NODES).attachments == unnamed.attachments, "nobody knows which is which"
    assert live_topology(named, {}, NODES) is named


def test_a_node_whose_ports_are_all_down_is_cut_off_and_its_gang_recovers() -> None:
    world = world_of(railed())
    world.submit("train", pods=2, gpus_each=8, required_level="leaf").settle()
    lost = nodes_of(world, "train")["main-0"]
    world.tell(PortsMeasured({lost: ports_of(False, False)}))
    plan = world.decide()
    [recovery] = plan.recoveries
    assert (recovery.kind, recovery.causes) == (FailureKind.LINK, (f"network of {lost}",))
    world.let_go()
    recover(world)
    assert is_whole(world, "train")
    assert lost not in nodes_of(world, "train").values()
    assert len({node[1] for node in nodes_of(world, "train").values()}) == 1


def test_a_node_is_reachable_again_when_its_agent_falls_silent() -> None:
    """Then nothing is known about its ports, and what is not known is no failure."""
    world = world_of(railed()).tell(PortsMeasured({"n00": ports_of(False, False)}))
    world.snapshot()
    assert world.state.failures.islands
    world.tell(PortsMeasured({"n00": ()}))
    world.snapshot()
    assert not world.state.failures.islands


@pytest.mark.parametrize("was_up", [True, False])
def test_without_attachments_only_ports_that_have_worked_cut_a_node_off(was_up: bool) -> None:
    world = fabric(4)
    world.submit("train", pods=2, gpus_each=8).settle()
    lost = nodes_of(world, "train")["main-0"]
    down = (NetworkPort("mlx5_0", 1, False, 50_000, 0, was_up),)
    world.tell(PortsMeasured({lost: down}))
    assert bool(world.decide().recoveries) is was_up


def test_half_the_ports_of_a_node_carry_half() -> None:
    rated = Topology("fabric", (TopologyLevel("leaf", "net/leaf"),), node_port_mb_s=50_000, node_ports=2)
    world = fabric(2).tell(TopologyChanged(rated), PortsMeasured({"l0-n0": ports_of(True, False)}))
    assert port_rates_of(world, "l0-n0") == [48_500]
    assert port_rates_of(world, "l0-n1") == [97_000]


def test_traffic_alone_tries_nothing_again_and_builds_no_table() -> None:
    world = world_of(railed()).tell(PortsMeasured({"n00": ports_of(True, True, used=0)}))
    world.decide()
    tables = world.state.nodes.topologies
    world.tell(PortsMeasured({"n00": ports_of(True, True, used=40_000)}))
    world.state.refresh_tables()
    assert world.state.nodes.topologies is tables
    assert not world.state.backlog.try_all
    assert not world.state.is_cycle_due


@pytest.mark.parametrize("quiet", ["one", "two"])
def test_a_gang_takes_the_leaves_whose_links_are_less_busy(quiet: str) -> None:
    """Two gangs cross two leaves each, and one of them sends nothing. Counted by nodes, all leaves are the same."""
    nodes = tuple(f"n{leaf}{at}" for leaf in range(4) for at in range(3))
    leaves = tuple(Domain(f"l{leaf}", "leaf") for leaf in range(4))
    ports = tuple(Attachment(node, f"l{node[1]}", 0, 50_000) for node in nodes)
    links = tuple(NetworkLink(leaf.name, "spine-1", 50_000, 2) for leaf in leaves)
    world = World(nodes=0).tell(TopologyChanged(Topology("fabric", (TopologyLevel("leaf"),), leaves, ports, links)))
    for node in nodes:
        world.node(node, gpus=8, labels={"host": node})
    places = {"one": ("n02", "n12"), "two": ("n22", "n32")}
    for name, own in places.items():
        world.submit(name, pods=2, request=Request(gpus=8, node_rules=(NodeRule("host", "In", own),))).settle()
        assert sorted(nodes_of(world, name).values()) == sorted(own)
    for name, own in places.items():
        used = 0 if name == quiet else 50_000
        world.tell(PortsMeasured({node: ports_of(True, used=used) for node in own}))
    world.submit("new", pods=6, gpus_each=8, preferred_level="leaf").decide()
    taken = Counter(node[1] for node in nodes_of(world, "new").values())
    assert taken == {node[1]: 2 if name == quiet else 1 for name, own in places.items() for node in own}


def test_a_silent_neighbour_leaves_the_whole_link() -> None:
    topology = railed()
    state = world_of(topology).state
    state.refresh_tables()
    rates = network_rates(state.nodes.topologies.by_name["fabric"], state.nodes.nodes)
    row = state.nodes.row
    gpus = np.zeros((1, len(NODES)), np.int64)
    gpus[0, [row["n00"], row["n01"], row["n10"], row["n11"]]] = 8
    others = np.zeros(len(NODES), np.int64)
    others[[row["n02"], row["n12"]]] = 1
    active = everywhere(others, rates)

    def speed(permille: int | None) -> int:
        if permille is None:
            return int(bus_bandwidth(rates, gpus, active)[0])
        ports = {node: ports_of(True, True, used=50 * permille) for node in ("n02", "n12")}
        return int(bus_bandwidth(rates, gpus, active._replace(busy_permille=busy_permille(ports, row)))[0])

    full = 3 * 50_000 * 970 // 1000
    assert speed(None) == speed(1000) == 2 * (full // 3)
    assert speed(0) == 2 * 48_500, "the ports are the limit, and the links carry more"
    assert speed(500) == 2 * 48_500
    assert [speed(each) for each in (0, 500, 1000)] == sorted([speed(each) for each in (0, 500, 1000)], reverse=True)


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 50_000)), max_size=9), st.lists(st.integers(0, 8), min_size=2)
)
def test_fully_busy_ports_predict_what_no_measurement_predicts(
    measured: list[tuple[int, int]], chosen: list[int]
) -> None:
    state = world_of(railed()).state
    state.refresh_tables()
    rates = network_rates(state.nodes.topologies.by_name["fabric"], state.nodes.nodes)
    gpus = np.zeros((1, len(NODES)), np.int64)
    gpus[0, chosen] = 8
    others = np.zeros(len(NODES), np.int64)
    others[[at for at, _ in measured]] = 1
    active = everywhere(others, rates)
    without = bus_bandwidth(rates, gpus, active)
    full = active._replace(busy_permille=np.full(len(NODES), 1000, np.int64))
    assert bus_bandwidth(rates, gpus, full).tolist() == without.tolist()
    ports = {NODES[at]: ports_of(True, True, used=used) for at, used in measured}
    lighter = ActiveNodes(active.rails, active.tiers, busy_permille(ports, state.nodes.row))
    assert (bus_bandwidth(rates, gpus, lighter) >= without).all()


def test_a_journal_base_holds_the_ports_and_the_same_snapshot_gives_the_same_plan() -> None:
    def plan(state: ClusterState | None = None) -> bytes:
        world = world_of(railed()).tell(
            PortsMeasured({"n00": ports_of(True, False), "n10": ports_of(True, True, used=9)})
        )
        copy = ClusterState()
        copy.patch(world.state.events())
        assert copy.ports == world.state.ports
        assert copy.failures.islands == world.state.failures.islands
        return encode_plan(world.submit("train", pods=4, gpus_each=8, preferred_level="leaf").decide())

    assert plan() == plan()
