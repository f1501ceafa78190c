"""The cost model agrees with the published points, and with a plain calculation of the slowest link."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.network.topology import Attachment, Domain, NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import DeviceLinks, Node
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.network.topology_tables import build_table
from kaiwo.topology.collective_time import (
    NO_PATH_US,
    Parallelism,
    StepTraffic,
    all_reduce_us,
    bus_bandwidth,
    step_us,
)
from kaiwo.topology.network_rates import NetworkRates, network_rates

GIB = 1 << 30
NIC = 48_500


def node(name: str, model: str = "MI300X") -> Node:
    return Node(name, gpus=tuple(Gpu(f"gpu-{at}", model, 1) for at in range(8)))


def fabric(leaves: int, per_leaf: int, rails: int, uplinks: int, dead: dict[str, int] | None = None) -> Topology:
    """Rails of 400 Gbit/s; each leaf has `uplinks` links of the same rate."""
    gone = dead or {}
    names = [f"l{leaf}r{rail}" for leaf in range(leaves) for rail in range(rails)]
    return Topology(
        "fabric",
        (TopologyLevel("unit"), TopologyLevel("leaf")),
        (
            *(Domain(f"u{leaf}", "unit") for leaf in range(leaves)),
            *(Domain(name, "leaf", (f"u{name[1 : name.index('r')]}",)) for name in names),
        ),
        tuple(
            Attachment(f"n{leaf}-{host}", f"l{leaf}r{rail}", rail, 50_000)
            for leaf in range(leaves)
            for host in range(per_leaf)
            for rail in range(rails)
        ),
        tuple(NetworkLink(name, "spine", 50_000, uplinks, gone.get(name, 0)) for name in names) if uplinks else (),
    )


def rates(topology: Topology, names: Sequence[str], model: str = "MI300X") -> NetworkRates:
    nodes = [node(name, model) for name in names]
    return network_rates(build_table(topology, nodes), nodes)


def counts(*rows: Sequence[int]) -> IntArray:
    return np.array(rows, np.int64)


@pytest.mark.parametrize("gpus", range(2, 9))
def test_an_mi300x_mesh_gives_one_link_for_each_other_gpu(gpus: int) -> None:
    found = rates(fabric(1, 1, 8, 0), ["n0-0"])
    assert bus_bandwidth(found, counts([gpus])).tolist() == [(gpus - 1) * 48_000]


@pytest.mark.parametrize("gpus", range(2, 9))
def test_an_nvswitch_gives_the_full_rate_to_any_number(gpus: int) -> None:
    assert bus_bandwidth(rates(fabric(1, 1, 8, 0), ["n0-0"], "H100"), counts([gpus])).tolist() == [370_800]


def test_eight_rails_of_400_gbit_carry_388_gb_s_and_the_mesh_is_slower() -> None:
    found = rates(fabric(1, 2, 8, 0), ["n0-0", "n0-1"])
    assert bus_bandwidth(found, counts([8, 8], [1, 1])).tolist() == [336_000, 8 * NIC]
    four = rates(fabric(1, 2, 4, 0), ["n0-0", "n0-1"])
    assert bus_bandwidth(four, counts([8, 8])).tolist() == [4 * NIC]


def test_a_single_gpu_needs_no_link() -> None:
    found = rates(fabric(1, 2, 1, 1), ["n0-0", "n0-1"])
    assert all_reduce_us(found, counts([1, 0], [0, 0]), GIB).tolist() == [0, 0]


def test_the_share_of_a_leaf_is_its_live_uplinks_by_its_active_hosts() -> None:
    names = [f"n{leaf}-{host}" for leaf in range(2) for host in range(4)]
    found = rates(fabric(2, 4, 1, 2), names)
    inside, across = [8, 8, 8, 8, 0, 0, 0, 0], [8, 8, 0, 0, 8, 8, 0, 0]
    assert bus_bandwidth(found, counts(inside, across)).tolist() == [NIC, NIC]
    wide = [8] * 8
    assert bus_bandwidth(found, counts(wide)).tolist() == [2 * NIC // 4]
    active = np.array([0, 0, 1, 1, 0, 0, 0, 0], np.int64)  # others' jobs on the first leaf
    assert bus_bandwidth(found, counts(across, inside), active).tolist() == [2 * NIC // 4, NIC]
    hurt = rates(fabric(2, 4, 1, 2, {"l1r0": 1}), names)
    assert bus_bandwidth(hurt, counts(wide, across)).tolist() == [NIC // 4, NIC // 2]


def test_the_slowest_rail_decides() -> None:
    names = [f"n{leaf}-{host}" for leaf in range(2) for host in range(2)]
    hurt = rates(fabric(2, 2, 4, 2, {"l0r2": 1}), names)
    assert bus_bandwidth(hurt, counts([8, 8, 8, 8])).tolist() == [4 * (NIC // 2)]


def test_no_working_uplink_means_no_path() -> None:
    names = ["n0-0", "n0-1", "n1-0"]
    cut = rates(fabric(2, 2, 1, 2, {"l0r0": 2}), names)
    assert bus_bandwidth(cut, counts([8, 0, 8], [8, 8, 0])).tolist() == [0, NIC]
    assert all_reduce_us(cut, counts([8, 0, 8]), GIB).tolist() == [NO_PATH_US]


def test_nodes_use_the_rails_that_all_of_them_have() -> None:
    topology = fabric(1, 2, 4, 0)
    left = tuple(port for port in topology.attachments if (port.node, port.rail) not in {("n0-0", 3), ("n0-1", 0)})
    found = rates(Topology("t", topology.levels, topology.domains, left), ["n0-0", "n0-1"])
    assert bus_bandwidth(found, counts([8, 8])).tolist() == [2 * NIC]


def test_a_rail_on_which_a_node_has_no_working_port_is_not_used() -> None:
    """Three of four rails are left to its gang; without any, there is no path."""
    four = fabric(1, 2, 4, 0)

    def with_dead(rails: int) -> Topology:
        first = [each for each in four.attachments if each.node == "n0-0"][:rails]
        return replace(
            four, attachments=tuple(replace(each, dead=1) if each in first else each for each in four.attachments)
        )

    found = [int(bus_bandwidth(rates(with_dead(dead), ["n0-0", "n0-1"]), counts([8, 8]))[0]) for dead in (0, 1, 4)]
    assert found == [4 * NIC, 3 * NIC, 0]


def test_a_topology_without_rates_is_not_known() -> None:
    found = rates(Topology("labels", (TopologyLevel("leaf", "x"),)), ["a", "b"])
    assert bus_bandwidth(found, counts([8, 8], [8, 0])).tolist() == [-1, 7 * 48_000]
    assert all_reduce_us(found, counts([8, 8]), GIB).tolist() == [-1]


def test_the_links_of_a_written_domain_count_once() -> None:
    """Its name is that of the domain and, since nothing was joined to it, that of its only part as well."""
    domains = (Domain("a", "leaf", nodes=("n1",)), Domain("b", "leaf", nodes=("n2",)))
    links = (NetworkLink("a", "up", 50_000, 2), NetworkLink("b", "up", 50_000, 4, 1))
    written = Topology("t", (TopologyLevel("leaf"),), domains, (), links, node_port_mb_s=50_000, node_ports=8)
    assert rates(written, ["n1", "n2"]).rails[0].uplink_mb_s.tolist() == [2 * NIC, 3 * NIC]


def test_levels_from_labels_may_have_rates() -> None:
    levels = (TopologyLevel("spine", "s", 50_000, 2), TopologyLevel("leaf", "l", 50_000, 2))
    topology = Topology("labels", levels, node_port_mb_s=50_000, node_ports=1)
    places = {"a": ("1", "1"), "b": ("1", "1"), "c": ("1", "2"), "d": ("2", "3")}
    nodes = [Node(name, gpus=node("x").gpus, labels={"s": spine, "l": leaf}) for name, (spine, leaf) in places.items()]
    found = network_rates(build_table(topology, nodes), nodes)
    assert bus_bandwidth(found, counts([8, 8, 0, 0], [8, 8, 8, 0], [8, 8, 8, 8])).tolist() == [
        NIC, NIC, 2 * NIC // 3,
    ]  # fmt: skip


def test_links_that_discovery_found_count_before_the_table_of_models() -> None:
    wiring = DeviceLinks(tuple(tuple(0 if a == b else 10_000 + a + b for b in range(4)) for a in range(4)))
    known = Node("n0-0", gpus=node("x").gpus, wiring=wiring)
    found = network_rates(build_table(fabric(1, 1, 1, 0), [known]), [known])
    assert found.pair_mb_s.tolist() == [10_001]


def test_the_time_of_an_all_reduce_is_that_of_its_slowest_link() -> None:
    found = rates(fabric(1, 2, 4, 0), ["n0-0", "n0-1"])
    moved = 2 * 15 * GIB
    assert all_reduce_us(found, counts([8, 8]), GIB).tolist() == [-(-moved // (16 * 4 * NIC))]


def test_parallelism_moves_traffic_to_the_links_that_carry_it() -> None:
    names = ["n0-0", "n0-1"]
    found = rates(fabric(1, 2, 8, 0), names)
    gpus = counts([8, 8])
    only_tensor = step_us(found, gpus, Parallelism(tensor=8), StepTraffic(0, tensor_bytes=GIB))
    assert only_tensor.tolist() == [-(-2 * 7 * GIB // (8 * 7 * 48_000))]  # inside the nodes
    # Eight tensor ranks a node: each data-parallel group has one GPU a node, and an eighth of its ports.
    data = step_us(found, gpus, Parallelism(tensor=8), StepTraffic(GIB))
    assert data.tolist() == [-(-2 * GIB // (2 * (8 * NIC // 8)))]
    wide = step_us(found, gpus, Parallelism(tensor=16), StepTraffic(0, tensor_bytes=GIB))
    assert wide.tolist() == all_reduce_us(found, gpus, GIB).tolist()
    pipeline = step_us(found, gpus, Parallelism(tensor=8, pipeline=2), StepTraffic(0, 0, GIB))
    assert pipeline.tolist() == [-(-GIB // NIC)]
    assert step_us(found, gpus, Parallelism(), StepTraffic(GIB)).tolist() == all_reduce_us(found, gpus, GIB).tolist()


@st.composite
def placements(draw: st.DrawFn) -> tuple[Topology, list[str], list[int], list[int]]:
    leaves, per_leaf, rails = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    uplinks = draw(st.integers(1, 3))
    dead = {f"l{leaf}r{rail}": draw(st.integers(0, uplinks)) for leaf in range(leaves) for rail in range(rails)}
    names = [f"n{leaf}-{host}" for leaf in range(leaves) for host in range(per_leaf)]
    gpus = [draw(st.integers(0, 8)) for _ in names]
    return fabric(leaves, per_leaf, rails, uplinks, dead), names, gpus, [draw(st.integers(0, 1)) for _ in names]


@given(placements())
def test_the_arrays_give_what_a_plain_calculation_gives(
    drawn: tuple[Topology, list[str], list[int], list[int]],
) -> None:
    topology, names, gpus, active = drawn
    found = bus_bandwidth(rates(topology, names), counts(gpus), np.array(active, np.int64))
    assert found.tolist() == [
        plain_bandwidth(topology, dict(zip(names, gpus, strict=True)), dict(zip(names, active, strict=True)))
    ]


@given(placements())
def test_one_more_dead_link_is_never_faster(drawn: tuple[Topology, list[str], list[int], list[int]]) -> None:
    topology, names, gpus, _ = drawn
    worse = tuple(
        NetworkLink(link.lower, link.upper, link.mb_s, link.count, min(link.count, link.dead + 1))
        for link in topology.links
    )
    hurt = Topology(topology.name, topology.levels, topology.domains, topology.attachments, worse)
    before, after = (all_reduce_us(rates(each, names), counts(gpus), GIB).tolist()[0] for each in (topology, hurt))
    assert after >= before


def plain_bandwidth(topology: Topology, gpus: dict[str, int], active: dict[str, int]) -> int:
    used = [name for name, count in gpus.items() if count]
    slowest = min([(gpus[name] - 1) * 48_000 for name in used if gpus[name] > 1], default=(1 << 63) // 4 - 1)
    if len(used) < 2:
        return slowest if slowest < (1 << 61) else np.iinfo(np.int64).max // 4
    leaf_of = {(port.node, port.rail): port.domain for port in topology.attachments}
    up = {link.lower: link.live_mb_s * 97 // 100 for link in topology.links}
    rails = sorted({port.rail for port in topology.attachments})
    by_rail = []
    for rail in rails:
        leaves = {leaf_of[name, rail] for name in used}
        rate = NIC
        for leaf in leaves if len(leaves) > 1 else ():
            hosts = sum(1 for name in gpus if leaf_of[name, rail] == leaf and (gpus[name] or active[name]))
            rate = min(rate, up[leaf] // hosts)
        by_rail.append(rate)
    return min(slowest, min(by_rail) * len(rails))
