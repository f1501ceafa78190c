"""Views of the network: domains with their links and load, and the workloads that use them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kaiwo.api.views.topology import (
    DomainAccessView,
    NetworkPortView,
    NetworkTopologyView,
    TopologyDomainView,
    TopologyFindingView,
    TopologyLevelView,
    TopologyLinkView,
    TopologyView,
)
from kaiwo.model.network.topology import NetworkLink, Topology, TopologyFinding
from kaiwo.model.performance import usual_permille
from kaiwo.model.workload import Workload
from kaiwo.snapshot.cluster_state import ClusterState
from kaiwo.snapshot.network.topology_tables import LevelTable, TopologyTable, node_aliases
from kaiwo.snapshot.node_table import FREE_GPU
from kaiwo.topology.contradictions import find_contradictions, find_unknown_nodes
from kaiwo.topology.link_capacity import DomainCapacity, domain_capacities, most_traffic
from kaiwo.topology.network_rates import data_rate

NO_CAPACITY = DomainCapacity(0, 0, 0, 0, 0, 0)


def topology_view(state: ClusterState, faults: Mapping[str, str], now_s: int) -> TopologyView:
    """The state must not change meanwhile."""
    state.refresh_tables()
    tables, names = state.nodes.topologies, state.nodes.names
    placed = {workload: {pod.node for pod in pods.values()} for workload, pods in state.pods.items()}
    spread = {workload: nodes for workload, nodes in sorted(placed.items()) if len(nodes) > 1}
    # Most work asks for no bandwidth, and costs nothing here.
    asking = {name: state.workloads[name] for name in spread if name in state.workloads}
    asking = {name: workload for name, workload in asking.items() if workload.bandwidth_mb_s}
    return TopologyView(
        now_s,
        [
            _topology(table, state, _Running(spread, asking), faults.get(name, ""))
            for name, table in sorted(tables.by_name.items())
        ],
        _findings(find_contradictions(tables, names)),
        [f"topology {name}: {fault}" for name, fault in sorted(faults.items()) if name not in tables.by_name],
        [
            NetworkPortView(node, port.device, port.number, "up" if port.is_up else "down", port.mb_s, port.used_mb_s)
            for node, ports in sorted(state.ports.items())
            for port in ports
            if port.was_up
        ],
    )


class _Running(NamedTuple):
    spread: Mapping[str, set[str]]  # by workload on several nodes: these
    asking: Mapping[str, Workload]  # those of them that ask for bandwidth


class _Place(NamedTuple):
    """A domain as it is shown: written domains one by one, domains of labels by their value."""

    name: str
    level: str
    parents: list[str]
    nodes: list[str]


def _topology(table: TopologyTable, state: ClusterState, running: _Running, fault: str) -> NetworkTopologyView:
    topology, spread = table.topology, running.spread
    places = [place for at, level in enumerate(table.levels) for place in _places(table, at, level, state.nodes.names)]
    used_by = _users(places, spread)
    capacities = domain_capacities(topology.attachments, topology.links)
    asked = _asked(places, used_by, running.asking, state)
    lower = {link.lower for link in topology.links} if state.ports else set()
    most = {
        place.name: most_traffic(topology, place.name, place.nodes, state.ports)
        for place in places
        if place.name in lower
    }
    return NetworkTopologyView(
        name=topology.name,
        source=topology.source,
        fault=fault,
        levels=[
            TopologyLevelView(
                level.name,
                level.node_label,
                sum(place.level == level.name for place in places),
                int((level.domain_of_node >= 0).sum()),
            )
            for level in table.levels
        ],
        domains=[
            replace(
                _domain(place, topology, capacities, state, used_by, spread),
                asked_mb_s=asked.get(place.name, 0),
                sent_mb_s=_sent(place, state),
                speed_percent=_speed(place, state),
            )
            for place in places
        ],
        links=[
            TopologyLinkView(
                link.lower, link.upper, link.mb_s, link.count, link.dead, link.state, link.used_mb_s,
                used_by.get(link.lower, []), _part_of(link, capacities, asked),
                min(most.get(link.lower, -1), link.live_mb_s),
            )
            for link in topology.links
        ],
        findings=_findings((*topology.findings, *find_unknown_nodes(topology, state.nodes.names))),
        access=[
            DomainAccessView(list(rule.domains), list(rule.queues), list(rule.namespaces)) for rule in topology.access
        ],
    )  # fmt: skip


def _places(table: TopologyTable, at: int, level: LevelTable, names: Sequence[str]) -> Iterable[_Place]:
    """All domains of a level. Written ones that no node is in are shown, too."""
    known = node_aliases(names)
    written = [domain for domain in table.topology.domains if domain.level == level.name]
    joined = {part for domain in written for part in (domain.name,)}
    members: dict[str, set[str]] = {domain.name: {known[n] for n in domain.nodes if n in known} for domain in written}
    for port in table.topology.attachments:
        if port.domain in members and port.node in known:
            members[port.domain].add(known[port.node])
    rows: dict[int, list[str]] = {}
    for row, number in enumerate(level.domain_of_node.tolist()):
        rows.setdefault(number, []).append(names[row])
    for domain in written:
        nodes = members[domain.name]
        if not nodes:  # those of the domains below it
            numbers = [number for number, name in enumerate(level.names) if domain.name in (name, *name.split("+"))]
            nodes = {node for number in numbers for node in rows.get(number, [])}
        yield _Place(domain.name, level.name, list(domain.parents), sorted(nodes))
    wider = table.levels[at - 1] if at else None
    for number, name in enumerate(level.names):
        if not joined.intersection((name, *name.split("+"))):
            above = int(level.parent[number])
            parents = [wider.names[above]] if wider is not None and above >= 0 else []
            yield _Place(name, level.name, parents, rows.get(number, []))


def _users(places: Sequence[_Place], spread: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """By domain: the workloads with pods inside and in another domain of the level, which use its links."""
    found: dict[str, list[str]] = {}
    domain_of: dict[str, dict[str, set[str]]] = {}  # by level and node
    for place in places:
        for node in place.nodes:
            domain_of.setdefault(place.level, {}).setdefault(node, set()).add(place.name)
    for by_node in domain_of.values():
        for workload, nodes in spread.items():
            inside = {node: by_node.get(node, set()) for node in nodes}
            every = set().union(*inside.values())
            for domain in sorted(every):
                if any(domain not in domains for domains in inside.values()):
                    found.setdefault(domain, []).append(workload)
    return found


def _asked(
    places: Sequence[_Place], used_by: Mapping[str, list[str]], asking: Mapping[str, Workload], state: ClusterState
) -> dict[str, int]:
    """By domain: the bandwidth that workloads have asked for on its links, in MB/s."""
    if not asking:
        return {}
    on_level: dict[tuple[str, str], int] = {}  # by level and node: its domains, one for each rail
    for place in places:
        for node in place.nodes:
            on_level[place.level, node] = on_level.get((place.level, node), 0) + 1
    found: dict[str, int] = {}
    for place in places:
        inside = set(place.nodes)
        for name in used_by.get(place.name, []):
            if name in asking:
                nodes = [pod.node for pod in state.pods[name].values() if pod.node in inside]
                sent = sum(-(-asking[name].bandwidth_mb_s // on_level[place.level, node]) for node in nodes)
                found[place.name] = found.get(place.name, 0) + sent
    return found


def _sent(place: _Place, state: ClusterState) -> int:
    """What the ports of its nodes carry now, as agents measure it; -1: nothing was measured."""
    measured = [
        port.used_mb_s
        for node in place.nodes
        for port in state.ports.get(node, ())
        if port.is_up and port.used_mb_s >= 0
    ]
    return sum(measured) if measured else -1


def _speed(place: _Place, state: ClusterState) -> int:
    """The mean speed of its nodes over the usual one, in percent; 0: nothing was measured."""
    speeds = state.speeds.nodes
    known = [speeds[node].permille for node in place.nodes if node in speeds and speeds[node].permille]
    return 100 * sum(known) // (len(known) * usual_permille(speeds.values())) if known else 0


def _part_of(link: NetworkLink, capacities: Mapping[str, DomainCapacity], asked: Mapping[str, int]) -> int:
    """A domain's traffic is spread over its links as they can carry it."""
    capacity = capacities.get(link.lower, NO_CAPACITY)
    return asked.get(link.lower, 0) * link.live_mb_s // capacity.links_mb_s if capacity.links_mb_s else 0


def _domain(
    place: _Place,
    topology: Topology,
    capacities: Mapping[str, DomainCapacity],
    state: ClusterState,
    used_by: Mapping[str, list[str]],
    spread: Mapping[str, set[str]],
) -> TopologyDomainView:
    capacity = capacities.get(place.name, NO_CAPACITY)
    level = next(each for each in topology.levels if each.name == place.level)
    links, link_mb_s = capacity.links, capacity.links_mb_s
    if not links and not capacity.dead:
        links, link_mb_s = level.uplinks, level.uplinks * level.uplink_mb_s
    is_narrowest = level is topology.levels[-1] and not topology.attachments
    ports = len(place.nodes) * topology.node_ports * topology.node_port_mb_s if is_narrowest else capacity.ports_mb_s
    rows = [state.nodes.row[node] for node in place.nodes]
    users = used_by.get(place.name, [])
    active = len({node for workload in users for node in spread[workload]}.intersection(place.nodes))
    return TopologyDomainView(
        name=place.name,
        level=place.level,
        parents=place.parents,
        nodes=place.nodes,
        gpu_milli=int(state.nodes.gpu_total[rows].sum()),
        free_gpu_milli=int(state.nodes.free[rows, FREE_GPU].sum()),
        links=links,
        dead_links=capacity.dead,
        link_mb_s=link_mb_s,
        port_mb_s=ports,
        oversubscription_milli=-(-ports * 1000 // link_mb_s) if link_mb_s else 0,
        active_nodes=active,
        share_mb_s=data_rate(link_mb_s) // active if active else 0,
        used_by=users,
    )


def _findings(found: Iterable[TopologyFinding]) -> list[TopologyFindingView]:
    return [TopologyFindingView(str(each.kind), each.subject, each.detail) for each in found]
