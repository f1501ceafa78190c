"""Write the status of KaiwoTopologies: how many domains each level has, and which nodes are in none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kaiwo.clusters.kubernetes.cache.node_cache import NodeCache
from kaiwo.clusters.kubernetes.client import Client
from kaiwo.clusters.kubernetes.decode.kaiwo_objects import TOPOLOGIES, TopologyLevel, TopologyObject, TopologySpec
from kaiwo.clusters.kubernetes.writers.coalescing_writer import Report, report_failures
from kaiwo.clusters.kubernetes.writers.status_writer import StatusWriter, condition, utc_now
from kaiwo.clusters.queue_access import first_names

Labels = Mapping[str, Mapping[str, str]]  # by node


class TopologyStatusWriter:
    def __init__(self, client: Client, nodes: NodeCache, report: Report) -> None:
        self._nodes = nodes
        self._objects: dict[str, TopologyObject] = {}
        self._changes = 0
        self._reviewed: object = None  # the state of objects and nodes that was reviewed last
        self._writer = StatusWriter(client, TOPOLOGIES, report_failures(report, "topology-status-failed", "topology"))
        self.close = self._writer.close

    def start(self) -> None:
        self._writer.start(self._review, self._stand_by)

    def upsert(self, item: TopologyObject) -> None:
        """An object is new or changed, perhaps only in its status."""
        self._objects[item.metadata.name] = item
        self._writer.written[item.metadata.name] = item.status or {}
        self._changes += 1

    def delete(self, item: TopologyObject) -> None:
        self._objects.pop(item.metadata.name, None)
        self._writer.drop(item.metadata.name)

    def _stand_by(self) -> None:
        self._reviewed = None

    def _review(self) -> None:
        now = (self._changes, self._nodes.changes)
        if now == self._reviewed:
            return
        self._reviewed = now
        labels = {name: node.labels for name, node in self._nodes.without_overlay.items()}
        for name, item in sorted(self._objects.items()):
            coverage, written = find_coverage(item.spec, labels), self._writer.written.get(name, {})
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


def find_coverage(spec: TopologySpec, labels: Labels) -> TopologyCoverage:
    problem = _problem(spec)
    parents = {} if problem else {domain.name: domain.parents for domain in spec.domains}
    level_of = {domain.name: domain.level for domain in spec.domains}
    inside: dict[str, dict[str, set[str]]] = {level.name: {} for level in spec.levels}  # level -> domain -> nodes
    for domain in spec.domains:
        inside.setdefault(domain.level, {}).setdefault(domain.name, set())
    for level in spec.levels:
        for node, own in labels.items():
            if level.node_label and (value := own.get(level.node_label)):
                inside[level.name].setdefault(value, set()).add(node)
    for domain in spec.domains:
        for name in (domain.name, *_above(domain.name, parents)):
            if name in level_of:
                inside[level_of[name]][name].update(node for node in domain.nodes if node in labels)
    found = {name: set().union(*domains.values()) for name, domains in inside.items()}
    levels = tuple(_level(level, len(inside[level.name]), len(found[level.name])) for level in spec.levels)
    placed = set(labels).intersection(*found.values()) if found else set()
    unknown = sorted({node for domain in spec.domains for node in domain.nodes if node not in labels})
    return TopologyCoverage(levels, len(placed), tuple(sorted(labels.keys() - placed)), problem, tuple(unknown))


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


def _level(level: TopologyLevel, domains: int, nodes: int) -> LevelCoverage:
    missing = f"they lack the label {level.node_label}" if level.node_label else "no domain names them"
    return LevelCoverage(level.name, domains, nodes, missing)


def _above(name: str, parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """All domains that contain this one. There is no cycle: `_problem` rules that out."""
    found: dict[str, None] = {}
    left = list(parents.get(name, ()))
    while left:
        each = left.pop()
        if each not in found:
            found[each] = None
            left += parents.get(each, ())
    return list(found)


def _problem(spec: TopologySpec) -> str:
    """What no schema can check: parents that do not exist, or are not wider."""
    rank = {level.name: at for at, level in enumerate(spec.levels)}
    level_of = {domain.name: domain.level for domain in spec.domains}
    labelled = {level.name for level in spec.levels if level.node_label}
    for domain in spec.domains:
        for parent in domain.parents:
            if parent not in level_of:
                if any(rank[name] < rank.get(domain.level, 0) for name in labelled):
                    continue  # it may be a value of a wider level's label
                return f"domain {domain.name} names the parent {parent}, which is not in domains; add it, or remove it"
            if rank.get(level_of[parent], 0) >= rank.get(domain.level, 0):
                return (
                    f"domain {domain.name} of level {domain.level} names the parent {parent} of level "
                    f"{level_of[parent]}, which is not wider; name one of an earlier level"
                )
    return ""


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
