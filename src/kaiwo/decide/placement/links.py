"""The links of one topology in one cycle: their rates, who uses them after all placements so far, and what is left."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from kaiwo.decide.placement.divide_by_rate import AreaNetwork, PlacementArea, pods_with_bandwidth
from kaiwo.decide.placement.levels import constraint_levels
from kaiwo.model.network.constraint import CONSOLIDATED
from kaiwo.model.network.level_groups import WHOLE, WorkloadLevels
from kaiwo.model.obstacle import BandwidthShort, Obstacle, Reason
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.working_copy import WorkingCopy
from kaiwo.topology.link_use import LinkUse, busy_permille, has_bandwidth, port_rates
from kaiwo.topology.network_rates import NetworkRates, network_rates


def rates_of(working: WorkingCopy, topology: str) -> NetworkRates | None:
    """None: no port has a known rate, or there is no such topology."""
    nodes = working.nodes
    table = nodes.topologies.by_name.get(topology) if topology else None
    if table is None:
        return None
    rates = nodes.once(("rates", topology), lambda: network_rates(table, nodes.nodes))
    return rates if rates.has_ports else None


class _UseByTopology(dict[str, LinkUse]):
    """What belongs to one working copy."""


def use_of_links(working: WorkingCopy, topology: str, rates: NetworkRates) -> LinkUse:
    """One object for all of a working copy's life, which follows its placements."""
    by_topology = working.view.own(_UseByTopology)
    if topology not in by_topology:
        view = working.view
        busy = busy_permille(view.measured_ports, view.nodes.row) if view.measured_ports else None
        by_topology[topology] = LinkUse(rates, view.bandwidth_of, view.gang_rows(), busy)
    use = by_topology[topology]
    use.follow(working.moves)
    return use


def carries(working: WorkingCopy, workload: str, levels: WorkloadLevels | None, nodes: Iterable[str]) -> bool:
    """Whether the links carry the need of a workload all of whose pods run on these nodes."""
    network = _network(working, workload, levels) if levels is not None else None
    if network is None:
        return True
    pods = Counter(working.nodes.row[node] for node in nodes)
    return has_bandwidth(network.rates, network.asked, pods, network.need_mb_s)


def carries_again(working: WorkingCopy, workload: str, levels: WorkloadLevels | None) -> bool:
    """Whether the links carry the need of a workload whose pods got their places back, beside what was placed since."""
    use = _link_use(working, levels) if levels is not None else None
    if use is None or levels is None:
        return True
    _, asked = use.without(workload)
    return has_bandwidth(use.rates, asked, use.pods_of(workload), levels.bandwidth_mb_s, use.asked_at_start)


def bandwidth_obstacle(
    working: WorkingCopy, workload: str, levels: WorkloadLevels, slots: IntArray, pods: int
) -> Obstacle | None:
    """Too few of its pods could have their bandwidth; None: by number, enough could, or nothing is known.

    `slots`: how many of its pods each node takes.
    """
    network = _network(working, workload, levels)
    if network is None or pods < 2:
        return None
    found = constraint_levels(working.nodes, levels.constraint((0, WHOLE)), CONSOLIDATED)
    everywhere = np.ones(len(slots), np.bool_)
    inside = tuple(each.domain_of_node for each in found.levels[:-1])
    area = PlacementArea(everywhere, inside, CONSOLIDATED, ~everywhere, np.zeros(len(slots), np.int64), network)
    have = pods_with_bandwidth(area, slots)
    if have >= pods:
        return None
    port = int(port_rates(network.rates).max(initial=0))
    return Obstacle(Reason.BANDWIDTH, pods, have, "pods", "", BandwidthShort(network.need_mb_s, port))


def _network(working: WorkingCopy, workload: str, levels: WorkloadLevels) -> AreaNetwork | None:
    """None: it needs no bandwidth, or no rate is known."""
    use = _link_use(working, levels)
    return AreaNetwork(use.rates, *use.without(workload), levels.bandwidth_mb_s) if use is not None else None


def _link_use(working: WorkingCopy, levels: WorkloadLevels) -> LinkUse | None:
    """Of the topology of a workload that needs bandwidth; None: it needs none, or no rate is known."""
    if not levels.bandwidth_mb_s:
        return None
    topology = constraint_levels(working.nodes, levels.constraint((0, WHOLE)), CONSOLIDATED).topology
    rates = rates_of(working, topology)
    return use_of_links(working, topology, rates) if rates is not None else None
