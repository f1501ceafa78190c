"""Find where pictures of the network disagree: a label says leaf 3, a dump leaf 5; or a file names unknown nodes.

In:    the tables of all topologies, the nodes.   Out: findings, sorted.

Sources may use different names for the same switch. Where a source's name is also a domain of the other source, the
names are compared. Otherwise a name stands for the domain that most of its nodes are in, and the other nodes disagree.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from kaiwo.model.amounts import count
from kaiwo.model.network.topology import FindingKind, Topology, TopologyFinding
from kaiwo.snapshot.network.topology_tables import LevelTable, TopologyTable, TopologyTables, node_aliases

FIRST = 3  # names in a sentence


def find_contradictions(tables: TopologyTables, nodes: Sequence[str]) -> tuple[TopologyFinding, ...]:
    """Inside each topology, and between levels of the same name in two topologies. `nodes`: the names of the rows."""
    found = []
    for _, table in sorted(tables.by_name.items()):
        found += [
            TopologyFinding(
                FindingKind.CONTRADICTION,
                conflict.node,
                f"is in {conflict.level} {conflict.label} by its label, and in {conflict.written} by "
                f"{table.topology.source or table.topology.name}; the latter counts",
            )
            for conflict in table.conflicts
        ]
    for one, other in combinations([table for _, table in sorted(tables.by_name.items())], 2):
        for level in one.levels:
            if (same := next((each for each in other.levels if each.name == level.name), None)) is not None:
                found += _between(level, same, one, other, nodes)
    return tuple(sorted(found, key=lambda each: (each.subject, each.detail)))


def find_unknown_nodes(topology: Topology, nodes: Sequence[str]) -> tuple[TopologyFinding, ...]:
    """What a source names, and the cluster does not have. At most one finding, however many they are."""
    named = {name for domain in topology.domains for name in domain.nodes} | {
        port.node for port in topology.attachments
    }
    known = node_aliases(nodes)
    unknown = sorted(named - known.keys())
    if not unknown or not nodes:
        return ()
    fact = f"names {count(len(unknown), 'node')} that the cluster does not have: {_first_of(unknown)}"
    if len(unknown) == len(named):
        fact += f"; none of its names is known, so check how they are written: the cluster has {_first_of(nodes)}"
    return (TopologyFinding(FindingKind.UNKNOWN_NODES, topology.source or topology.name, fact),)


def _first_of(names: Sequence[str]) -> str:
    more = len(names) - FIRST
    return ", ".join(names[:FIRST]) + (f" and {count(more, 'other')}" if more > 0 else "")


def _between(
    one: LevelTable, two: LevelTable, first: TopologyTable, second: TopologyTable, nodes: Sequence[str]
) -> list[TopologyFinding]:
    pairs = [
        (nodes[row], one.names[a], two.names[b])
        for row, (a, b) in enumerate(zip(one.domain_of_node.tolist(), two.domain_of_node.tolist(), strict=True))
        if a >= 0 and b >= 0
    ]
    expected = _expected(pairs, set(two.names))
    return [
        TopologyFinding(
            FindingKind.CONTRADICTION,
            node,
            f"is in {one.name} {name} by {first.topology.source or first.topology.name}, and in {seen} by "
            f"{second.topology.source or second.topology.name}"
            + (f", where the other nodes of {name} are in {expected[name]}" if expected[name] != name else ""),
        )
        for node, name, seen in pairs
        if seen != expected[name]
    ]


def _expected(pairs: list[tuple[str, str, str]], names: set[str]) -> dict[str, str]:
    """By a domain of one source: the domain of the other that it stands for."""
    counts: dict[str, Counter[str]] = {}
    for _, name, seen in pairs:
        counts.setdefault(name, Counter())[seen] += 1
    return {
        name: name if name in names else min(seen, key=lambda each: (-seen[each], each))
        for name, seen in counts.items()
    }
