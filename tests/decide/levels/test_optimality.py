"""Predicted cost against exhaustive search, on random trees of up to 16 nodes."""

import random
from itertools import combinations

import numpy as np

from kaiwo.model.events import NodeChanged, TopologyChanged
from kaiwo.model.gpu import Gpu
from kaiwo.model.network.topology import NetworkLink, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.topology.collective_time import all_reduce_us
from kaiwo.topology.network_rates import network_rates
from tests.decide.levels.fabrics import busy, nodes_of
from tests.worlds import World

PORT_MB_S = 50_000
BYTES = 1 << 30
TREES = 300


def random_tree(chance: random.Random) -> World:
    """Leaves of two to six nodes under one to three spines; half of them oversubscribed, some links dead."""
    world = World(nodes=0)
    left, leaf, links = 16, 0, []
    spines = chance.randint(1, 3)
    while left > 1 and leaf < 6:
        nodes = chance.randint(2, min(6, left))
        count = max(1, nodes // chance.choice([1, 1, 2]))
        dead = sum(chance.random() < 0.1 for _ in range(count))
        links.append(NetworkLink(f"leaf-{leaf}", f"spine-{leaf % spines}", PORT_MB_S, count, min(dead, count - 1)))
        for at in range(nodes):
            name = f"l{leaf}-n{at}"
            labels = {"net/spine": f"spine-{leaf % spines}", "net/leaf": f"leaf-{leaf}", "host": name}
            gpus = tuple(Gpu(f"gpu-{number}", "MI300X", 196_608) for number in range(8))
            world.tell(NodeChanged(Node(name, 192_000, 2 << 20, 110, gpus, labels=labels)))
        left, leaf = left - nodes, leaf + 1
    levels = (TopologyLevel("spine", "net/spine"), TopologyLevel("leaf", "net/leaf"))
    world.tell(TopologyChanged(Topology("fabric", levels, links=tuple(links), node_port_mb_s=PORT_MB_S, node_ports=1)))
    for node in sorted(world.state.node_objects):
        if chance.random() < 0.3:
            busy(world, node)
    return world


def test_placements_are_nearly_as_fast_as_the_best_of_all() -> None:
    ratios = []
    for seed in range(TREES):
        world = random_tree(random.Random(seed))
        world.snapshot()
        nodes = world.state.nodes
        free = [row for row, name in enumerate(nodes.names) if not world.state.allocations_on.get(name)]
        pods = random.Random(seed + 10_000).randint(2, 7)
        if len(free) < pods:
            continue
        active = np.array([row not in free for row in range(len(nodes.names))], np.int64)
        rates = network_rates(nodes.topologies.by_name["fabric"], nodes.nodes)
        chosen = np.array(list(combinations(free, pods)))
        every = np.zeros((len(chosen), len(nodes.names)), np.int64)
        np.put_along_axis(every, chosen, 8, axis=1)
        best = int(all_reduce_us(rates, every, BYTES, active).min())
        world.submit("train", pods=pods, gpus_each=8, preferred_level="leaf")
        world.decide()
        ours = np.zeros((1, len(nodes.names)), np.int64)
        ours[0, [nodes.row[node] for node in nodes_of(world, "train").values()]] = 8
        assert (ours > 0).sum() == pods
        ratios.append(int(all_reduce_us(rates, ours, BYTES, active)[0]) / best)
    assert len(ratios) > TREES // 2
    assert sum(ratios) / len(ratios) <= 1.02
    assert max(ratios) <= 1.10
