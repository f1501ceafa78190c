"""Which domains of the network are closed to a workload, by its queue and its namespace.

In:    the access rules of all topologies.   Out: each request with the domains that are closed to it.

Requests carry the closed domains, so equal requests of queues with equal rights still share a shape, and clusters
without rules have as few shapes as before. Whoever looks for a place sees the same request: no step can forget a rule.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from kaiwo.model.network.topology import Topology
from kaiwo.model.queue import Queue, queue_path
from kaiwo.model.request import Request
from kaiwo.model.workload import Workload
from kaiwo.snapshot.array_types import BoolArray
from kaiwo.snapshot.node_table import NodeTable

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState


class AccessRules:
    """The rules in force, and what they mean for each queue and namespace that was asked for."""

    def __init__(self) -> None:
        self._queues: dict[str, frozenset[str]] = {}  # by domain with a rule: the queues that may use it
        self._namespaces: dict[str, frozenset[str]] = {}
        self._closed: dict[tuple[str, str], tuple[str, ...]] = {}  # by queue and namespace
        self.in_use = False

    def follow(self, topologies: Iterable[Topology]) -> bool:
        """Take over the rules of all topologies. False: they are as before."""
        queues: dict[str, set[str]] = {}
        namespaces: dict[str, set[str]] = {}
        for topology in topologies:
            for rule in topology.access:
                for name in rule.domains:
                    queues.setdefault(f"{topology.name}/{name}", set()).update(rule.queues)
                    namespaces.setdefault(f"{topology.name}/{name}", set()).update(rule.namespaces)
        now = {name: frozenset(each) for name, each in queues.items()}
        named = {name: frozenset(each) for name, each in namespaces.items()}
        if (now, named) == (self._queues, self._namespaces):
            return False
        self._queues, self._namespaces, self._closed, self.in_use = now, named, {}, bool(now)
        return True

    def forget_queue_paths(self) -> None:
        self._closed = {}

    def with_closed(self, workload: Workload, request: Request, queues: Mapping[str, Queue]) -> Request:
        """The request of one of its roles, with the domains that it may not use."""
        if not self.in_use:
            return request
        key = (workload.queue, workload.name.partition("/")[0])
        if (closed := self._closed.get(key)) is None:
            path = {queue.name for queue in queue_path(queues, workload.queue)} | {workload.queue}
            closed = self._closed[key] = self._closed_to(path, key[1])
        return replace(request, closed_domains=closed) if closed else request

    def with_closed_to_namespace(self, workload: str, request: Request) -> Request:
        """The same for a pod that no queue has."""
        closed = self._closed_to(set(), workload.partition("/")[0]) if self.in_use else ()
        return replace(request, closed_domains=closed) if closed else request

    def _closed_to(self, queues: set[str], namespace: str) -> tuple[str, ...]:
        return tuple(
            name
            for name in sorted(self._queues)
            if not self._queues[name] & queues and namespace not in self._namespaces[name]
        )

    def copy(self) -> "AccessRules":
        other = AccessRules()
        other._queues, other._namespaces, other._closed = self._queues, self._namespaces, dict(self._closed)
        other.in_use = self.in_use
        return other


def nodes_in_domains(nodes: NodeTable, domains: tuple[str, ...]) -> BoolArray:
    """By row: whether the node is in one of these domains, on whatever level. Joined domains count as their parts."""
    return nodes.once(("in domains", domains), lambda: _nodes_in(nodes, frozenset(domains)))


def _nodes_in(nodes: NodeTable, domains: frozenset[str]) -> BoolArray:
    found = np.zeros(len(nodes.names), np.bool_)
    for name, table in nodes.topologies.by_name.items():
        for level in table.levels:
            numbers = [
                number
                for number, domain in enumerate(level.names)
                if any(f"{name}/{part}" in domains for part in (domain, *domain.split("+")))
            ]
            found |= np.isin(level.domain_of_node, numbers)
    return found


def domain_access_changed(state: "ClusterState") -> None:
    """A topology came, changed or went: where its rules differ, all waiting work is sorted again."""
    topologies = [state.topology_objects[name] for name in sorted(state.topology_objects)]
    if state.domain_access.follow(topologies):
        _requeue_all(state)


def queues_of_access_changed(state: "ClusterState", before: Queue | None, after: Queue | None) -> None:
    state.domain_access.forget_queue_paths()
    if state.domain_access.in_use and (before and before.parent) != (after and after.parent):
        _requeue_all(state)


def _requeue_all(state: "ClusterState") -> None:
    for name in state.backlog.queued_names():
        state.to_requeue[name] = None
