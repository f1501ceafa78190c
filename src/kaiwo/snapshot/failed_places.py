"""Failures as the state knows them: nodes and GPUs that do not work, nodes that are gone, and who lost pods there.

In:    events about nodes and recoveries.   Out: what a cycle must look at, and the nodes that a workload must not use.
Never: looks at nodes that work. Without a failure, nothing here costs anything.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from kaiwo.model.events import Event, NodeGone, RecoveryChanged, RecoveryGone
from kaiwo.model.network.topology import Topology
from kaiwo.model.node import SPARE_TAINT, Node, NodeFailure
from kaiwo.model.recovery import Recovery
from kaiwo.model.request import Request, Toleration
from kaiwo.snapshot.sharing_rules import tenant_of

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState

SPARE = Toleration(SPARE_TAINT, "Exists")
_NO_FAILURE = NodeFailure()


class Island(NamedTuple):
    """Nodes that the rest of the network cannot reach."""

    cause: str  # as in Recovery.causes
    nodes: frozenset[str]


class FailedPlaces:
    def __init__(self) -> None:
        self.islands: dict[str, tuple[Island, ...]] = {}  # by topology
        self.nodes: set[str] = set()  # that do not work, or of which a GPU does not
        self.gone: dict[str, int] = {}  # nodes that were removed, and since when
        self.recoveries: dict[str, Recovery] = {}  # by workload
        self.resting: dict[str, int] = {}  # nodes that came and went, and until when they take no new work
        self._bad_for: dict[str, tuple[str, ...]] = {}  # by node
        self._bad_nodes: dict[str, tuple[str, ...]] = {}  # by workload

    @property
    def any(self) -> bool:
        return bool(self.nodes or self.gone or self.recoveries or self.islands)

    def concerns(self, workload: str) -> bool:
        return workload in self._bad_nodes or workload in self.recoveries

    def bad_nodes_of(self, workload: str) -> tuple[str, ...]:
        """The nodes on which it lost pods, sorted."""
        return self._bad_nodes.get(workload, ())

    def with_memory(self, workload: str, request: Request) -> Request:
        """The request of a workload that lost pods: not on those nodes again, and on spare nodes until it is whole."""
        bad = self._bad_nodes.get(workload)
        if bad:
            request = replace(request, avoid_nodes=tuple(sorted({*request.avoid_nodes, *bad})))
        return with_spare_nodes(request) if workload in self.recoveries else request

    def has_news(self, node: Node, before: Node | None) -> bool:
        """Whether a node or one of its GPUs failed, was fenced, or works again."""
        broken = {gpu.id for gpu in before.gpus if gpu.failed_s} if before is not None else set()
        has_new = any(gpu.failed_s and gpu.id not in broken for gpu in node.gpus)
        known = before.failure if before is not None else _NO_FAILURE
        has_changed = (node.failure.since_s, node.failure.is_fenced) != (known.since_s, known.is_fenced)
        return has_new or has_changed

    def node_changed(self, node: Node) -> Iterable[str]:
        """Returns the workloads that may use other nodes than before."""
        is_broken = bool(node.failure.since_s) or any(gpu.failed_s for gpu in node.gpus)
        (self.nodes.add if is_broken else self.nodes.discard)(node.name)
        self.gone.pop(node.name, None)
        self.resting.pop(node.name, None)
        if node.failure.out_until_s:
            self.resting[node.name] = node.failure.out_until_s
        return self._set_bad_for(node.name, node.failure.bad_for)

    def node_gone(self, event: NodeGone) -> Iterable[str]:
        self.nodes.discard(event.name)
        self.resting.pop(event.name, None)
        if event.since_s:
            self.gone[event.name] = event.since_s
        return self._set_bad_for(event.name, ())

    def topology_changed(self, name: str, topology: Topology | None) -> bool:
        """None: it is gone. Returns whether some part of it is cut off."""
        self.islands.pop(name, None)
        found = tuple(islands_of(topology)) if topology is not None else ()
        if found:
            self.islands[name] = found
        return bool(found)

    def events(self) -> list[Event]:
        gone = [NodeGone(name, since_s) for name, since_s in sorted(self.gone.items())]
        return [*gone, *(RecoveryChanged(found) for _, found in sorted(self.recoveries.items()))]

    def copy(self) -> "FailedPlaces":
        other = FailedPlaces()
        other.nodes, other.gone, other.recoveries = set(self.nodes), dict(self.gone), dict(self.recoveries)
        other.islands = dict(self.islands)
        other.resting, other._bad_for = dict(self.resting), dict(self._bad_for)
        other._bad_nodes = dict(self._bad_nodes)
        return other

    def _set_bad_for(self, node: str, workloads: tuple[str, ...]) -> Iterable[str]:
        before = self._bad_for.pop(node, ())
        if workloads:
            self._bad_for[node] = workloads
        changed = sorted(set(before) ^ set(workloads))
        for name in changed:
            bad = {*self._bad_nodes.pop(name, ())} ^ {node}
            if bad:
                self._bad_nodes[name] = tuple(sorted(bad))
        return changed


def with_spare_nodes(request: Request) -> Request:
    return request if SPARE in request.tolerations else replace(request, tolerations=(*request.tolerations, SPARE))


def islands_of(topology: Topology) -> Iterator[Island]:
    """Nodes without a working port, and domains without a working link up."""
    ports: dict[str, list[bool]] = {}
    for port in topology.attachments:
        ports.setdefault(port.node, []).append(port.dead < port.count)
    cut_off = {node for node in ports if not any(ports[node])}
    for node in sorted(cut_off.union(each.node for each in topology.ports_down if each.down == each.count)):
        yield Island(f"network of {node}", frozenset((node,)))
    links: dict[str, list[bool]] = {}
    for link in topology.links:
        links.setdefault(link.lower, []).append(link.dead < link.count)
    inside: dict[str, set[str]] = {domain.name: set(domain.nodes) for domain in topology.domains}
    for port in topology.attachments:
        inside.setdefault(port.domain, set()).add(port.node)
    # A node with a working port in another domain (another rail) is not cut off with this one.
    reachable = {
        port.node for port in topology.attachments if port.dead < port.count and any(links.get(port.domain, [True]))
    }
    for domain in sorted(links):
        if not any(links[domain]):
            names = frozenset(inside.get(domain, ())) - reachable
            if names:
                yield Island(f"links of {domain}", names)


def recovery_changed(state: "ClusterState", event: RecoveryChanged) -> None:
    state.failures.recoveries[event.recovery.workload] = event.recovery
    state.to_requeue[event.recovery.workload] = None  # it may use spare nodes now


def recovery_gone(state: "ClusterState", event: RecoveryGone) -> None:
    if state.failures.recoveries.pop(event.workload, None) is not None:
        state.to_requeue[event.workload] = None


def end_rests(state: "ClusterState", now_s: int) -> None:
    """Nodes that came and went take work again once their time is over."""
    for name in [name for name, until_s in state.failures.resting.items() if until_s <= now_s]:
        del state.failures.resting[name]
        node = state.node_objects[name]
        node = state.node_objects[name] = replace(node, failure=replace(node.failure, out_until_s=0))
        state.version += 1
        state.is_cycle_due = True
        state.retry_all_classes()
        if not state.nodes_stale:
            held = state.allocations_on.get(name, {}).values()
            state.nodes.write_node(node, held, state.version, partial(tenant_of, state))
