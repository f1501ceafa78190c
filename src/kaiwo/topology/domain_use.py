"""How much of each domain of the network is in use.

In:    the node table.   Out: for each topology, level and domain: its nodes, and the GPU capacity that is allocated.
Never: a level with more domains than `MAX_DOMAINS`, such as one of single nodes: a metric for each would be too many.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.snapshot.network.topology_tables import LevelTable
from kaiwo.snapshot.node_table import FREE_GPU, NodeTable

MAX_DOMAINS = 500


class DomainUse(NamedTuple):
    topology: str
    level: str
    domain: str
    nodes: int
    nodes_in_use: int  # nodes with GPUs of which some are allocated
    gpu_milli: int
    used_milli: int

    @property
    def node_ratio(self) -> float:
        return self.nodes_in_use / self.nodes if self.nodes else 0.0

    @property
    def gpu_ratio(self) -> float:
        return self.used_milli / self.gpu_milli if self.gpu_milli else 0.0


def use_of_domains(nodes: NodeTable) -> list[DomainUse]:
    """Levels from the widest on, domains by name."""
    return [
        use
        for name, table in sorted(nodes.topologies.by_name.items())
        for level in table.levels
        if len(level.names) <= MAX_DOMAINS
        for use in _use_of_level(name, level, nodes)
    ]


def _use_of_level(topology: str, level: LevelTable, nodes: NodeTable) -> list[DomainUse]:
    known = level.domain_of_node >= 0
    domains, count = level.domain_of_node[known], len(level.names)
    total = nodes.gpu_total[known]
    used = np.maximum(total - nodes.free[known, FREE_GPU], 0)
    by_domain = (
        np.bincount(domains, minlength=count),
        np.bincount(domains[used > 0], minlength=count),
        *(np.bincount(domains, weights=amounts, minlength=count) for amounts in (total, used)),
    )
    return [
        DomainUse(topology, level.name, name, *(int(amounts[number]) for amounts in by_domain))
        for number, name in enumerate(level.names)
    ]
