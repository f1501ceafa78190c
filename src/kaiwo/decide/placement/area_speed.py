"""Which areas are fastest for a gang, where the rates of the links are known.

In:    the areas that could take its pods, and how they would be divided there.   Out: the same areas, the one with the
highest predicted bandwidth first; and areas without nodes that would slow down all others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from kaiwo.decide.placement.divide_by_rate import AreaNetwork
from kaiwo.decide.placement.domain_choice import DomainTerms, PodsWanted
from kaiwo.decide.placement.measured_performance import FULL
from kaiwo.snapshot.array_types import BoolArray, IntArray
from kaiwo.snapshot.node_table import NodeTable
from kaiwo.topology.collective_time import bus_bandwidth
from kaiwo.topology.network_rates import port_kinds

PREDICTION_STEP = 10  # thousandths of the best bandwidth: less is no reason to choose another domain
MAX_MB_S = 1 << 40  # a single GPU has no limit at all
MAX_COMMON_PORTS = 8  # that an area is tried with, those that carry most
MAX_WITHOUT_SLOW_PORTS = 12  # areas; each takes about 1 ms at 1,000 nodes


class ChosenArea(NamedTuple):
    """The domain of one part, or all nodes of the part around it."""

    mask: BoolArray
    level: int  # NO_LEVEL: no single domain
    number: int
    terms: DomainTerms | None  # None: there was no choice, since pods of it run there
    candidates: int


def fastest_first(
    network: AreaNetwork, areas: Sequence[ChosenArea], gpus: IntArray, is_used: BoolArray
) -> Iterator[ChosenArea]:
    """Those that are about as fast stay in their order. `gpus`: by area and node, of the gang; `is_used`: by node."""
    speed = np.minimum(bus_bandwidth(network.rates, gpus, network.active), MAX_MB_S)
    best = int(speed.max(initial=0))
    if best <= 0:
        yield from areas
        return
    # Nodes in use that send nothing now may do so at any time: they decide between equals.
    later = bus_bandwidth(network.rates, gpus, is_used.astype(np.int64))
    order = np.lexsort((np.arange(len(areas)), _loss(later), _loss(speed)))
    for at in order.tolist():
        terms = areas[at].terms
        aligned = int(np.clip(speed[at] * FULL // best, 0, FULL))
        yield areas[at]._replace(terms=terms._replace(alignment=aligned) if terms else None)


def without_slow_ports(
    nodes: NodeTable, topology: str, network: AreaNetwork, areas: Sequence[ChosenArea], wants: Sequence[PodsWanted]
) -> list[ChosenArea]:
    """The same domains, where they have room enough, without nodes whose ports are dead or slow."""
    return list(islice(_without_slow_ports(nodes, topology, network, areas, wants), MAX_WITHOUT_SLOW_PORTS))


def _without_slow_ports(
    nodes: NodeTable, topology: str, network: AreaNetwork, areas: Sequence[ChosenArea], wants: Sequence[PodsWanted]
) -> Iterator[ChosenArea]:
    kinds = nodes.once(("port kinds", topology), lambda: port_kinds(network.rates))
    has_room = np.any([want.slots > 0 for want in wants], axis=0)
    with_ports: dict[bytes, list[BoolArray]] = {}  # by the kinds of nodes in an area
    for area in areas:
        here = np.unique(kinds.of_node[area.mask & has_room])
        if len(here) < 2:
            continue
        if here.tobytes() not in with_ports:
            with_ports[here.tobytes()] = [kinds.having(each) for each in kinds.common_ports(here, MAX_COMMON_PORTS)]
        known = {(area.mask & has_room).tobytes()}
        for mask in (area.mask & having for having in with_ports[here.tobytes()]):
            left = (mask & has_room).tobytes()
            if left not in known and all(int(want.slots[mask].sum()) >= want.pods for want in wants):
                yield area._replace(mask=mask)
            known.add(left)


def _loss(speed: IntArray) -> IntArray:
    """How much slower than the fastest, in steps that matter; without a path, or if nothing is known, all of it."""
    speed = np.minimum(speed, MAX_MB_S)
    best = max(1, int(speed.max(initial=0)))
    loss: IntArray = np.where(speed < 0, FULL, FULL - speed * FULL // best) // PREDICTION_STEP
    return loss
