"""The rates of a network as arrays: each node's ports by rail, and the links out of each domain.

In:    the table of one topology, the nodes of its rows.   Out: NetworkRates, which `collective_time` computes with.
A rate of -1 is not known and limits nothing; a rate of 0 means that no link works.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kaiwo.model.gpus.gpu import vendor_of
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.snapshot.array_types import BoolArray, IntArray, freeze
from kaiwo.snapshot.network.topology_tables import TopologyTable, node_aliases

NOT_KNOWN = -1
LINE_RATE_PERMILLE = 970  # what is left of a port's rate for data: 48.5 GB/s of 400 Gbit/s
_NO_LIMIT = 1 << 40
_MAX_COMMON = 32  # of 5 rails, each node may lack any
PCIE_MB_S = 26_000  # between GPUs without a link of their own
# MB/s between two GPUs of a node, where discovery found no links. AMD: of the link of one pair; three quarters of the
# raw rate are left for data. NVIDIA: of one GPU's links to the switch.
PAIR_MB_S = {
    "MI210": 36_000, "MI250X": 36_000, "MI300A": 48_000, "MI300X": 48_000, "MI308X": 48_000, "MI325X": 48_000,
    "MI350X": 57_600, "MI355X": 57_600, "A100": 240_000, "H100": 370_800, "H200": 370_800, "B200": 721_800,
}  # fmt: skip


class RailRates(NamedTuple):
    """One rail: each node's port and leaf, and the links up from each leaf."""

    leaf_of_node: IntArray  # -1: the node has no port on this rail
    port_mb_s: IntArray  # by node, of its working ports
    uplink_mb_s: IntArray  # by leaf, of its working links


class TierRates(NamedTuple):
    """One level above the leaves: the domain of each node, and the links out of each domain."""

    domain_of_node: IntArray
    uplink_mb_s: IntArray  # by domain


class NetworkRates(NamedTuple):
    """By row of the node table."""

    rails: tuple[RailRates, ...]
    tiers: tuple[TierRates, ...]
    pair_mb_s: IntArray  # between two GPUs inside the node
    is_switched: BoolArray  # every GPU has that rate in all; otherwise it has it to each other GPU

    @property
    def has_ports(self) -> bool:
        return bool(self.rails)


class PortKinds(NamedTuple):
    """Nodes with ports of the same rates on the same rails are of one kind."""

    of_node: IntArray
    mb_s: IntArray  # by kind and rail; 0: no port works

    def common_ports(self, kinds: IntArray, most: int) -> list[IntArray]:
        """The ports, by rail, that nodes of some of these kinds have in common: those that carry most come first."""
        found = {tuple(row) for row in self.mb_s[kinds].tolist()}
        for row in sorted(found):
            found |= {tuple(map(min, row, other)) for other in found}
            if len(found) > _MAX_COMMON:
                break
        ranked = sorted(found, key=lambda ports: (-_rate_of(ports), tuple(-mb_s for mb_s in ports)))
        return [np.array(ports, np.int64) for ports in ranked[:most]]

    def having(self, ports: IntArray) -> BoolArray:
        """By node: whether no rail is slower there."""
        kinds: BoolArray = np.all(self.mb_s >= ports, axis=1)
        return kinds[self.of_node]


def _rate_of(ports: tuple[int, ...]) -> int:
    """Data is spread evenly over the rails that all nodes have."""
    works = [mb_s for mb_s in ports if mb_s]
    return len(works) * min(works, default=0)


def port_kinds(rates: NetworkRates) -> PortKinds:
    """A port whose rate is not known slows down nobody."""
    by_rail = [
        np.where(rail.leaf_of_node < 0, 0, np.where(rail.port_mb_s < 0, _NO_LIMIT, rail.port_mb_s))
        for rail in rates.rails
    ]
    kinds, of_node = np.unique(np.stack(by_rail, axis=1), axis=0, return_inverse=True)
    return PortKinds(of_node.reshape(-1), kinds)


def network_rates(table: TopologyTable, nodes: Sequence[Node]) -> NetworkRates:
    pairs = [_inside(node) for node in nodes]
    pair_mb_s = np.array([rate for rate, _ in pairs], np.int64).reshape(len(nodes))
    switched = np.array([is_switched for _, is_switched in pairs], np.bool_).reshape(len(nodes))
    freeze(pair_mb_s)
    freeze(switched)
    rails = tuple(_written_rails(table.topology, nodes)) or tuple(_default_rail(table, nodes))
    narrowest = 1 if rails and not table.topology.attachments else 0  # then the narrowest level is the rail's leaf
    tiers = tuple(_tiers(table, len(table.levels) - narrowest))
    return NetworkRates(rails, tiers, pair_mb_s, switched)


def data_rate(mb_s: int) -> int:
    """What a link carries of data."""
    return mb_s * LINE_RATE_PERMILLE // 1000


def _inside(node: Node) -> tuple[int, bool]:
    """The rate between two GPUs of a node, and whether they share a switch."""
    if not node.gpus:
        return PCIE_MB_S, True
    model = node.gpus[0].model
    links = [rate for at, row in enumerate(node.wiring.mb_s) for other, rate in enumerate(row) if other != at and rate]
    rate = min(links, default=PAIR_MB_S.get(model, PCIE_MB_S))
    # Without links of their own, all GPUs share the PCIe switches.
    return rate, vendor_of(node.gpus[0]) == "nvidia" or rate <= PCIE_MB_S


def _written_rails(topology: Topology, nodes: Sequence[Node]) -> Iterable[RailRates]:
    known = node_aliases([node.name for node in nodes])
    row = {node.name: at for at, node in enumerate(nodes)}
    uplinks = _uplinks(topology)
    leaves = {name: at for at, name in enumerate(sorted({port.domain for port in topology.attachments}))}
    up = np.array([data_rate(uplinks[name]) if name in uplinks else NOT_KNOWN for name in leaves], np.int64)
    freeze(up)
    for rail in sorted({port.rail for port in topology.attachments}):
        leaf_of = np.full(len(nodes), NOT_KNOWN, np.int64)
        rate = np.full(len(nodes), NOT_KNOWN, np.int64)
        for port in topology.attachments:
            if port.rail == rail and port.node in known:
                at = row[known[port.node]]
                # Two ports on one rail: the data takes both; the leaf of the first by name counts.
                leaf_of[at] = leaves[port.domain] if leaf_of[at] < 0 else min(int(leaf_of[at]), leaves[port.domain])
                if port.mb_s:
                    rate[at] = max(0, int(rate[at])) + data_rate(port.live_mb_s)
        leaf_of[rate == 0] = NOT_KNOWN  # all its ports on this rail are dead: the others carry the data
        freeze(leaf_of)
        freeze(rate)
        yield RailRates(leaf_of, rate, up)


def _default_rail(table: TopologyTable, nodes: Sequence[Node]) -> Iterable[RailRates]:
    """A topology without attachments: each node has the same ports, all of them in its narrowest domain.

    Of the ports that its agent knows, some may be down.
    """
    topology = table.topology
    if not topology.node_port_mb_s or not topology.node_ports or not table.levels:
        return
    leaf = table.levels[-1]
    rate = np.full(len(leaf.domain_of_node), data_rate(topology.node_port_mb_s) * topology.node_ports, np.int64)
    row = {node.name: at for at, node in enumerate(nodes)} if topology.ports_down else {}
    for each in topology.ports_down:
        if each.node in row:
            rate[row[each.node]] = rate[row[each.node]] * (each.count - each.down) // each.count
    freeze(rate)
    yield RailRates(leaf.domain_of_node, rate, _level_uplinks(table, len(table.levels) - 1))


def _tiers(table: TopologyTable, end: int) -> Iterable[TierRates]:
    """Levels with links out of their domains, without those that are leaves of a rail."""
    leaves = {port.domain for port in table.topology.attachments}
    leaf_levels = {domain.level for domain in table.topology.domains if domain.name in leaves}
    for at, level in enumerate(table.levels[:end]):
        up = _level_uplinks(table, at)
        if level.name not in leaf_levels and (up != NOT_KNOWN).any():
            yield TierRates(level.domain_of_node, up)


def _level_uplinks(table: TopologyTable, at: int) -> IntArray:
    """By domain of a level. Domains that were joined into one have the links of all of them."""
    level, written = table.levels[at], table.topology.levels[at]
    uplinks = _uplinks(table.topology)
    default = data_rate(written.uplink_mb_s) * written.uplinks if written.uplink_mb_s and written.uplinks else NOT_KNOWN
    found = np.full(len(level.names), default, np.int64)
    for number, name in enumerate(level.names):
        own = [uplinks[part] for part in {name, *name.split("+")} if part in uplinks]
        if own:
            found[number] = data_rate(sum(own))
    freeze(found)
    return found


def _uplinks(topology: Topology) -> dict[str, int]:
    """By domain: MB/s of its working links up, for all domains with a link whose rate is known."""
    found: dict[str, int] = {}
    for link in topology.links:
        if link.mb_s:
            found[link.lower] = found.get(link.lower, 0) + link.live_mb_s
    return found
