"""The levels that a constraint speaks of, as arrays: by level, the number of each node's domain.

In:    the node table and a constraint.   Out: the levels from the widest to single nodes, and which of them it means.
A level comes from a topology or, where no topology has it, from the node label of that name.
"""

from typing import NamedTuple

import numpy as np

from kaiwo.model.network.constraint import BALANCED, CONSOLIDATED, TopologyConstraint
from kaiwo.snapshot.array_types import IntArray
from kaiwo.snapshot.network.topology_tables import TopologyTable
from kaiwo.snapshot.node_table import NodeTable

NO_LEVEL = -1
SINGLE_NODES = "node"  # the narrowest level of every topology
NODE_KEYS = (SINGLE_NODES, "host", "kubernetes.io/hostname")  # how people name it


class Level(NamedTuple):
    name: str
    domain_of_node: IntArray  # by row; -1: none. Each domain lies in one domain of the level before
    domain_names: tuple[str, ...]


class ConstraintLevels(NamedTuple):
    """One constraint on one set of nodes."""

    topology: str  # its name; empty: node labels alone
    levels: tuple[Level, ...]  # the widest first; the last one is single nodes
    required: int  # the level that must hold; NO_LEVEL: none must
    tightest: int  # the narrowest level to try; NO_LEVEL: no single domain is looked for
    widest: int  # the widest level to try; NO_LEVEL: any node is good enough in the end
    unknown: str = ""  # the required level, if no topology and no node has it


def constraint_levels(nodes: NodeTable, constraint: TopologyConstraint, strategy: str) -> ConstraintLevels:
    """Computed once until a node or a topology changes."""
    return nodes.once(("levels", constraint, strategy), lambda: _resolve(nodes, constraint, strategy))


def _resolve(nodes: NodeTable, constraint: TopologyConstraint, strategy: str) -> ConstraintLevels:
    table = _table(nodes, constraint)
    levels = _levels_of_table(table) if table is not None else _levels_of_labels(nodes, constraint)
    names = tuple(nodes.names)
    levels = (*levels, Level(SINGLE_NODES, np.arange(len(names), dtype=np.int64), names))
    required, preferred = (_find(table, levels, key) for key in (constraint.required, constraint.preferred))
    stated = max(required, preferred)
    last = len(levels) - 1
    unknown = constraint.required if constraint.required and required == NO_LEVEL else ""
    if not unknown and required != NO_LEVEL and not (levels[required].domain_of_node >= 0).any():
        unknown = constraint.required
    tightest = last if strategy in (CONSOLIDATED, BALANCED) else stated
    name = table.topology.name if table is not None else ""
    return ConstraintLevels(name, levels, required, tightest, required, unknown)


def _table(nodes: NodeTable, constraint: TopologyConstraint) -> TopologyTable | None:
    """The topology that is named, or the first by name that has the level; without a level, the first.

    One that knows none of the nodes comes last: it describes another cluster, or a part that is not there.
    """
    tables = nodes.topologies.by_name
    if constraint.topology:
        return tables.get(constraint.topology)
    key = constraint.required or constraint.preferred
    every = [tables[name] for name in sorted(tables)]
    if not key and constraint.bandwidth_mb_s:  # one whose ports have rates, if there is any
        every.sort(key=lambda table: not (table.topology.attachments or table.topology.node_port_mb_s))
    having = [each for each in every if not key or each.level(key) is not None]
    return next((each for each in having if _knows_nodes(each, key)), next(iter(having), None))


def _knows_nodes(table: TopologyTable, key: str) -> bool:
    levels = [table.level(key)] if key else table.levels
    return any(level is not None and bool((level.domain_of_node >= 0).any()) for level in levels)


def _levels_of_table(table: TopologyTable) -> tuple[Level, ...]:
    return tuple(Level(level.name, level.domain_of_node, level.names) for level in table.levels)


def _levels_of_labels(nodes: NodeTable, constraint: TopologyConstraint) -> tuple[Level, ...]:
    """Without a topology, the labels themselves: the required one is the wider."""
    keys = dict.fromkeys(key for key in (constraint.required, constraint.preferred) if key and key not in NODE_KEYS)
    found: list[Level] = []
    for key in keys:
        values = [node.labels.get(key, "") for node in nodes.nodes]
        wider = found[-1].domain_of_node if found else np.zeros(len(values), np.int64)
        paths = [(int(above), value) for above, value in zip(wider, values, strict=True)]
        ordered = sorted({path for path in paths if path[1]})
        number = {path: at for at, path in enumerate(ordered)}
        domains = np.fromiter((number.get(path, -1) for path in paths), np.int64, len(paths))
        found.append(Level(key, domains, tuple(value for _, value in ordered)))
    return tuple(found)


def _find(table: TopologyTable | None, levels: tuple[Level, ...], key: str) -> int:
    """The number of a level that is named by its name or its node label."""
    if not key:
        return NO_LEVEL
    if table is not None:
        found = next((at for at, each in enumerate(table.levels) if key in (each.name, each.node_label)), NO_LEVEL)
        if found != NO_LEVEL:
            return found
    if key in NODE_KEYS:
        return len(levels) - 1
    return next((at for at, level in enumerate(levels) if level.name == key), NO_LEVEL)
