"""Write the status of KaiwoTopologies: how many domains each level has, and which nodes are in none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kaiwo.clusters.kubernetes.cache.cluster_cache import ClusterCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import TOPOLOGIES, TopologyObject, read_topology_object
from kaiwo.clusters.kubernetes.writers.coalescing_writer import Report, report_failures
from kaiwo.clusters.kubernetes.writers.status_writer import StatusWriter, condition, utc_now
from kaiwo.clusters.queue_access import first_names
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import Node
from kaiwo.snapshot.network.topology_tables import LevelTable, build_table, node_aliases

Labels = Mapping[str, Mapping[str, str]]  # by node


class TopologyStatusWriter:
    """Also hands the topologies over to the cache: one that cannot be read leaves the one before in force."""

    def __init__(self, client: Client, cache: ClusterCache, report: Report) -> None:
        self._cache, self._report = cache, report
        self._objects: dict[str, TopologyObject] = {}
        self._changes = 0
        self._reviewed: object = None  # the state of objects and nodes that was reviewed last
        self._writer = StatusWriter(client, TOPOLOGIES, report_failures(report, "topology-status-failed", "topology"))
        self.close = self._writer.close

    def start(self) -> None:
        self._writer.start(self._review, self._stand_by)

    def upsert(self, item: TopologyObject) -> None:
        """An object is new or changed, perhaps only in its status."""
        name, topology = item.metadata.name, read_topology_object(item)
        self._objects[name] = item
        self._writer.written[name] = item.status or {}
        self._changes += 1
        if not isinstance(topology, str):
            self._cache.queue_events(self._cache.topology_cache.upsert(topology))
        elif self._cache.topology_cache.upsert_fault(name, topology):
            self._report("topology-unreadable", level="warning", topology=name, error=topology)

    def delete(self, item: TopologyObject) -> None:
        self._objects.pop(item.metadata.name, None)
        self._writer.drop(item.metadata.name)
        self._cache.queue_events(self._cache.topology_cache.delete(item.metadata.name))

    def _stand_by(self) -> None:
        self._reviewed = None

    def _review(self) -> None:
        nodes, topologies = self._cache.node_cache, self._cache.topology_cache
        now = (self._changes, nodes.changes)
        if now == self._reviewed:
            return
        self._reviewed = now
        labels = {name: node.labels for name, node in nodes.without_overlay.items()}
        for name, item in sorted(self._objects.items()):
            in_force = topologies.items.get(name, Topology(name, ()))
            coverage = find_coverage(in_force, labels)._replace(problem=topologies.faults.get(name, ""))
            written = self._writer.written.get(name, {})
            self._writer.put_changed(name, status_fields(coverage, item.metadata.generation, written, utc_now()))


class LevelCoverage(NamedTuple):
    name: str
    domains: int
    nodes: int  # in one of the domains
    missing: str  # what the other nodes lack


class TopologyCoverage(NamedTuple):
    levels: tuple[LevelCoverage, ...]
    nodes: int  # in a domain on every level
    outside: tuple[str, ...]  # in no domain on some level
    problem: str = ""  # why the topology is not usable, in one sentence
    unknown: tuple[str, ...] = ()  # nodes that it names and that do not exist


def find_coverage(topology: Topology, labels: Labels) -> TopologyCoverage:
    """How many domains each level has for these nodes, and which nodes are in none."""
    nodes = [Node(name, labels=dict(own)) for name, own in sorted(labels.items())]
    table = build_table(topology, nodes)
    levels, placed = [], {node.name for node in nodes}
    for level in table.levels:
        inside = {node.name for node, number in zip(nodes, level.domain_of_node.tolist(), strict=True) if number >= 0}
        written = {domain.name for domain in topology.domains if domain.level == level.name}
        counted = len(written.union(*([set(level.names)] if level.node_label else [])))
        levels.append(_level(level, counted, len(inside)))
        placed &= inside
    known = node_aliases([node.name for node in nodes])
    unknown = sorted({name for domain in topology.domains for name in domain.nodes if name not in known})
    outside = tuple(sorted(labels.keys() - placed)) if levels else tuple(sorted(labels))
    return TopologyCoverage(tuple(levels), len(labels) - len(outside), outside, "", tuple(unknown))


def status_fields(coverage: TopologyCoverage, generation: int, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """As the custom resource definition names them. `before`: the status so far, for the times of its conditions."""
    known, gaps = before.get("conditions") or (), _gaps(coverage)
    return {
        "observedGeneration": generation,
        "domains": sum(level.domains for level in coverage.levels),
        "nodes": coverage.nodes,
        "nodesWithoutPlace": len(coverage.outside),
        "levels": [{"name": each.name, "domains": each.domains, "nodes": each.nodes} for each in coverage.levels],
        "message": coverage.problem or gaps,
        "conditions": [
            condition("Ready", ("Sound", "Mistake"), coverage.problem, known, now),
            condition("Complete", ("EveryNodeHasAPlace", "NodesWithoutAPlace"), gaps, known, now),
        ],
    }


def _level(level: LevelTable, domains: int, nodes: int) -> LevelCoverage:
    missing = f"they lack the label {level.node_label}" if level.node_label else "no domain names them"
    return LevelCoverage(level.name, domains, nodes, missing)


def _gaps(coverage: TopologyCoverage) -> str:
    """Nodes outside the domains, and names without a node; empty: there are none."""
    total, parts = coverage.nodes + len(coverage.outside), []
    for level in coverage.levels:
        if level.nodes < total:
            parts.append(f"{total - level.nodes} of {total} nodes are in no domain of {level.name}: {level.missing}")
    if coverage.outside:
        parts.append(f"not in the topology: {first_names(coverage.outside)}")
    if coverage.unknown:
        parts.append(f"named, but not in the cluster: {first_names(coverage.unknown)}")
    return "; ".join(parts)
