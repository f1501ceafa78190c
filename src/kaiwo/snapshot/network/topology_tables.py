"""The domains of every node, as arrays: one array for each level of each topology, whatever the source of the level.

In:    topologies and nodes.   Out: immutable tables whose rows are the rows of the node table.
Never: depends on the order in which topologies and nodes arrived. Domains are numbered by their path of names.

Domains of one level never overlap here, and each lies in one domain of the next wider level. Written domains that share
a node (the leaves of several rails) are therefore joined into one, named `leaf-1+leaf-2`.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from kaiwo.model.network.topology import Domain, Topology, TopologyLevel
from kaiwo.model.node import Node
from kaiwo.snapshot.array_types import IntArray, freeze

UNKNOWN = -1


class LevelTable(NamedTuple):
    """One level: the number of each node's domain, and the name of each number. Only domains with nodes are numbered.

    Numbers follow the order of paths (the wider domain first, then the name), so a tie that falls to the lower number
    falls to the name.
    """

    name: str
    node_label: str
    names: tuple[str, ...]  # by domain
    domain_of_node: IntArray  # by row of the node table; -1: not known
    parent: IntArray  # by domain: its domain on the next wider level; -1: not known, or this is the widest level
    number: Mapping[tuple[int, str], int]  # the wider domain's number and the own name, to the domain's number


class LevelConflict(NamedTuple):
    """A label and a written domain disagree about a node. The written domain counts."""

    node: str
    level: str
    label: str
    written: str


class TopologyTable(NamedTuple):
    topology: Topology
    levels: tuple[LevelTable, ...]  # the widest first
    conflicts: tuple[LevelConflict, ...] = ()

    def level(self, key: str) -> LevelTable | None:
        """A level by its name or by its node label."""
        return next((each for each in self.levels if key in (each.name, each.node_label)), None)


class TopologyTables(NamedTuple):
    """The tables of all topologies. A changed topology, or a changed label of a node, replaces one table."""

    by_name: Mapping[str, TopologyTable] = MappingProxyType({})
    version: int = 0  # increases with every change of an array

    def level(self, key: str, topology: str = "") -> LevelTable | None:
        """A level by its name or node label, in one topology or in the first by name that has it."""
        for name in [topology] if topology else sorted(self.by_name):
            if (table := self.by_name.get(name)) is not None and (found := table.level(key)) is not None:
                return found
        return None

    def with_topology(self, topology: Topology, nodes: Sequence[Node]) -> "TopologyTables":
        return self._with({topology.name: build_table(topology, nodes)})

    def without(self, name: str) -> "TopologyTables":
        left = {key: table for key, table in self.by_name.items() if key != name}
        return TopologyTables(MappingProxyType(left), self.version + (name in self.by_name))

    def with_node(self, row: int, before: Node, nodes: Sequence[Node]) -> "TopologyTables":
        """Patch the tables whose labels have changed on this node, which `nodes` already has."""
        now = nodes[row].labels
        if not self.by_name or before.labels == now:
            return self
        changed = {}
        for name, table in self.by_name.items():
            keys = [level.node_label for level in table.levels if level.node_label]
            if any(before.labels.get(key) != now.get(key) for key in keys):
                changed[name] = _moved(table, row, nodes[row]) or build_table(table.topology, nodes)
        return self._with(changed) if changed else self

    def _with(self, changed: Mapping[str, TopologyTable]) -> "TopologyTables":
        return TopologyTables(MappingProxyType({**self.by_name, **changed}), self.version + 1)


def build_table(topology: Topology, nodes: Sequence[Node]) -> TopologyTable:
    """All levels of a topology for these nodes, in this order."""
    written = _written_names(topology, nodes)
    levels: list[LevelTable] = []
    conflicts: list[LevelConflict] = []
    wider = np.full(len(nodes), UNKNOWN, np.int64)
    for level in topology.levels:
        own = _own_names(level, written[level.name], nodes, conflicts)
        levels.append(_number_level(level, own, wider))
        wider = levels[-1].domain_of_node
    return TopologyTable(topology, tuple(levels), tuple(conflicts))


def node_aliases(names: Sequence[str]) -> dict[str, str]:
    """The names that a source may use for each node: its own, and its host name without the domain, if it is unique."""
    short: dict[str, str] = {}
    for name in names:
        first = name.split(".", 1)[0]
        short[first] = "" if first in short else name
    return {**{first: name for first, name in short.items() if name}, **{name: name for name in names}}


def _moved(table: TopologyTable, row: int, node: Node) -> TopologyTable | None:
    """The table with one node moved between known domains; None: domains appear or vanish, so number them anew."""
    if table.topology.domains or table.topology.attachments:
        return None  # a written domain may overrule the label
    levels, wider = [], UNKNOWN
    for level in table.levels:
        value = node.labels.get(level.node_label, "") if level.node_label else ""
        number = level.number.get((wider, value)) if value else UNKNOWN
        before = int(level.domain_of_node[row])
        if number is None:
            return None
        if number != before:
            if before != UNKNOWN and int(np.count_nonzero(level.domain_of_node == before)) == 1:
                return None
            domains = level.domain_of_node.copy()
            domains[row] = number
            freeze(domains)
            level = level._replace(domain_of_node=domains)
        levels.append(level)
        wider = number
    return table._replace(levels=tuple(levels))


def _own_names(
    level: TopologyLevel, written: Mapping[str, str], nodes: Sequence[Node], conflicts: list[LevelConflict]
) -> list[str]:
    """By node: the name of its domain; empty: none."""
    found = []
    for node in nodes:
        name, label = written.get(node.name, ""), node.labels.get(level.node_label, "") if level.node_label else ""
        if name and label and label != name and label not in name.split("+"):
            conflicts.append(LevelConflict(node.name, level.name, label, name))
        found.append(name or label)
    return found


def _number_level(level: TopologyLevel, own: Sequence[str], wider: IntArray) -> LevelTable:
    paths = [(int(above), name) for above, name in zip(wider, own, strict=True)]
    ordered = sorted({path for path in paths if path[1]})
    number = {path: at for at, path in enumerate(ordered)}
    domains = np.fromiter((number.get(path, UNKNOWN) for path in paths), np.int64, len(paths))
    parent = np.fromiter((above for above, _ in ordered), np.int64, len(ordered))
    freeze(domains)
    freeze(parent)
    names = tuple(name for _, name in ordered)
    return LevelTable(level.name, level.node_label, names, domains, parent, MappingProxyType(number))


def _written_names(topology: Topology, nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
    """By level and node: the name of the domain that the source writes down, with overlapping domains joined."""
    result: dict[str, dict[str, str]] = {level.name: {} for level in topology.levels}
    if not topology.domains:
        return result
    known = node_aliases([node.name for node in nodes])
    by_name = {domain.name: domain for domain in topology.domains}
    direct: dict[str, set[str]] = {
        domain.name: {known[name] for name in domain.nodes if name in known} for domain in topology.domains
    }
    for port in topology.attachments:
        if port.domain in direct and port.node in known:
            direct[port.domain].add(known[port.node])
    inside: dict[str, dict[str, set[str]]] = {level: {} for level in result}  # level -> domain -> nodes
    for name, members in direct.items():
        for each in _with_wider(name, by_name):
            if each.level in inside and members:
                inside[each.level].setdefault(each.name, set()).update(members)
    for level, domains in inside.items():
        result[level] = _joined(domains)
    return result


def _with_wider(name: str, by_name: Mapping[str, Domain]) -> Iterable[Domain]:
    """A domain and all that contain it. Unknown parents and cycles end the way up."""
    found: dict[str, Domain] = {}
    left = [name]
    while left:
        domain = by_name.get(left.pop())
        if domain is not None and domain.name not in found:
            found[domain.name] = domain
            left += domain.parents
    return found.values()


def _joined(domains: Mapping[str, set[str]]) -> dict[str, str]:
    """By node: the names of all domains that are linked by shared nodes, as one name."""
    group: dict[str, str] = {}  # a domain to another of its group, up to the group's first

    def first(name: str) -> str:
        while (above := group.get(name, name)) != name:
            group[name] = group.get(above, above)
            name = above
        return name

    owner: dict[str, str] = {}
    for name in sorted(domains):
        for node in domains[name]:
            other = first(owner.setdefault(node, name))
            own = first(name)
            if other != own:
                group[max(own, other)] = min(own, other)
    members: dict[str, list[str]] = {}
    for name in sorted(domains):
        members.setdefault(first(name), []).append(name)
    return {node: "+".join(members[first(name)]) for node, name in owner.items()}
