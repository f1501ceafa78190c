"""The GPUs of a request: no other set of the node has a higher predicted bandwidth, and what is left stays useful."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaiwo.gpus.device_locality import MAX_SETS, best_set, sets_in_turn
from kaiwo.gpus.link_bandwidth import PCIE_MB_S, predicted_mb_s
from kaiwo.model.events import NodeChanged
from kaiwo.model.gpus.gpu import Gpu
from kaiwo.model.network.topology import Topology, TopologyLevel
from kaiwo.model.node import DeviceLinks, Node
from kaiwo.snapshot.network.topology_tables import build_table
from kaiwo.topology.collective_time import bus_bandwidth
from kaiwo.topology.network_rates import network_rates
from kaiwo.topology.sources.nccl_xml import read_nccl_xml
from tests.gpus.device_links import by_hand, hives, mesh, wired
from tests.worlds import World

MODELS = "fixtures/gpu/rocm-rccl/tools/topo_expl/models"


def chosen(wiring: DeviceLinks, columns: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(columns[at] for at in best_set(wiring, tuple(columns), count))


@st.composite
def machines(draw: st.DrawFn) -> DeviceLinks:
    """Eight GPUs with links of a few rates, perhaps none; perhaps a switch; NUMA nodes and network cards."""
    rates = draw(st.lists(st.sampled_from((0, 24_000, 36_000, 48_000, 144_000)), min_size=28, max_size=28))
    rows = mesh(8, 0)
    for (a, b), rate in zip(combinations(range(8), 2), rates, strict=True):
        rows[a][b] = rows[b][a] = rate
    numa = draw(st.lists(st.integers(-1, 1), min_size=8, max_size=8))
    nic = draw(st.lists(st.integers(-1, 3), min_size=8, max_size=8))
    total = draw(st.one_of(st.just([]), st.lists(st.sampled_from((0, 100_000)), min_size=8, max_size=8)))
    return wired(rows, numa, nic, total)


@settings(max_examples=40, deadline=None)
@given(machines(), st.sets(st.integers(0, 7), min_size=2), st.data())
def test_of_eight_gpus_no_other_set_is_faster_nearer_or_leaves_more(
    wiring: DeviceLinks, free: set[int], data: st.DataObject
) -> None:
    """Exhaustive, and by hand: bandwidth, then NUMA nodes, then network cards, then what is left."""
    columns = sorted(free)
    count = data.draw(st.integers(1, len(columns)))

    def quality(devices: Sequence[int]) -> tuple[int, int, int]:
        cards = {wiring.nic_of(device) for device in devices} - {-1}
        return by_hand(wiring, devices), -len({wiring.numa_of(device) for device in devices}), len(cards)

    def left_over(devices: Sequence[int]) -> tuple[list[tuple[int, int, int]], int]:
        left = [device for device in columns if device not in devices]
        sizes = [size for size in (4, 2) if size <= len(left)]
        best = [max(quality(other) for other in combinations(left, size)) for size in sizes]
        return best, -sum(wiring.speed(a, b) for a in devices for b in left)

    got = chosen(wiring, columns, count)
    assert len(set(got)) == count
    assert set(got) <= free
    every = list(combinations(columns, count))
    assert quality(got) == max(map(quality, every))
    equal = [devices for devices in every if quality(devices) == quality(got)]
    assert left_over(got) == max(map(left_over, equal))


@pytest.mark.parametrize("name", ["topo_8p_940.xml", "topo_8p_90a.xml", "topo_8p6l_4nic.xml", "topo_8p_rome.xml"])
def test_on_real_machines_with_eight_gpus_the_choice_is_the_best_of_all(shared_dir: Path, name: str) -> None:
    wiring = read_nccl_xml((shared_dir / MODELS / name).read_text(), name).links
    for count in range(2, 9):
        got = chosen(wiring, range(8), count)
        assert by_hand(wiring, got) == max(by_hand(wiring, each) for each in combinations(range(8), count))


def test_an_mi250_machine_keeps_packages_together(shared_dir: Path) -> None:
    wiring = read_nccl_xml((shared_dir / MODELS / "topo_16p1h.xml").read_text()).links
    pairs = sets_in_turn(wiring, range(16), 2)
    assert sorted(pairs) == [(at, at + 1) for at in range(0, 16, 2)]
    for count in (3, 4):
        got = chosen(wiring, range(16), count)
        assert by_hand(wiring, got) == max(by_hand(wiring, each) for each in combinations(range(16), count))
    assert chosen(wiring, range(16), 8) == tuple(range(8))


def test_the_prediction_is_the_cost_model_where_all_pairs_are_alike() -> None:
    for rows, total, model in ((mesh(8, 48_000), (), "MI300X"), (mesh(8, 370_800), (370_800,) * 8, "H100")):
        wiring = wired(rows, total=total)
        node = Node("n", gpus=tuple(Gpu(f"gpu-{at}", model, 1) for at in range(8)), wiring=wiring)
        rates = network_rates(build_table(Topology("t", (TopologyLevel("leaf", "leaf"),)), [node]), [node])
        for count in range(2, 9):
            told = int(bus_bandwidth(rates, np.array([[count]], np.int64))[0])
            assert predicted_mb_s(wiring, range(count)) == told
    assert predicted_mb_s(wired(mesh(8, 48_000)), range(8)) == 336_000  # the published point
    assert predicted_mb_s(wired(mesh(8, 48_000)), (0, 1)) == 48_000
    assert predicted_mb_s(wired(mesh(2, 0)), (0, 1)) == PCIE_MB_S


def test_four_gpus_of_one_hive_rather_than_of_two() -> None:
    assert chosen(hives(4), [0, 1, 2, 4, 5, 6, 7], 4) == (4, 5, 6, 7)
    assert chosen(hives(4), [1, 2, 5], 2) == (1, 2)


def test_on_a_switch_all_sets_are_as_fast_and_numa_and_network_cards_decide() -> None:
    flat = wired(mesh(4, 370_800), (0, 1, 1, 0), total=(370_800,) * 4)
    assert chosen(flat, range(4), 2) == (0, 3)
    carded = wired(mesh(4, 7), (0, 0, 0, 0), (-1, 2, 2, 3))
    assert chosen(carded, range(4), 2) == (1, 3)


def test_a_single_gpu_is_taken_where_it_breaks_no_pair() -> None:
    rows = mesh(6, 0)
    for a, b in ((0, 1), (2, 3)):
        rows[a][b] = rows[b][a] = 50_000
    assert chosen(wired(rows), range(6), 1) == (4,)
    assert chosen(wired(rows), [0, 2, 3], 1) == (0,)
    assert chosen(hives(4), [0, 1, 2, 4, 5, 6, 7], 1) == (0,)
    assert chosen(hives(4), [0, 1, 2, 4, 5, 6, 7], 2) == (0, 1)


def test_large_nodes_are_answered_by_growing_sets() -> None:
    wiring = hives(16)
    free = [*range(10), *range(16, 32)]
    got = chosen(wiring, free, 8)
    assert len(list(combinations(range(10), 8))) < MAX_SETS < len(free) ** 4
    assert len(set(got)) == 8
    assert len({wiring.numa_of(device) for device in got}) == 1


def node(wiring: DeviceLinks, count: int = 8) -> Node:
    gpus = tuple(Gpu(f"gpu-{at}", "MI210", 65_536) for at in range(count))
    return Node("n", cpu_milli=10**6, memory_mib=10**6, gpus=gpus, wiring=wiring)


def test_every_pod_of_a_gang_on_one_node_gets_a_good_set_not_only_the_first() -> None:
    """The pairs with fast links are 0-7, 1-6, 2-5 and 3-4: by position, only the first pod would have one."""
    rows = mesh(8, 0)
    for at in range(8):
        rows[at][7 - at] = 50_000
    world = World(nodes=0).tell(NodeChanged(node(wired(rows))))
    world.submit("gang", pods=4, gpus_each=2).decide()
    held = [{share.gpu for share in pod.devices} for pod in world.state.pods["default/gang"].values()]
    assert sorted(map(sorted, held)) == [["gpu-0", "gpu-7"], ["gpu-1", "gpu-6"], ["gpu-2", "gpu-5"], ["gpu-3", "gpu-4"]]


def test_single_gpus_leave_a_whole_hive_to_who_comes_later() -> None:
    world = World(nodes=0).tell(NodeChanged(node(hives(4))))
    for number in range(4):
        world.submit(f"one-{number}", gpus_each=1).settle()
    world.finish("one-1").submit("again", gpus_each=1).settle()
    world.submit("four", gpus_each=4).settle()
    assert world.devices_of("four") == [f"n/gpu-{at}" for at in range(4, 8)]
