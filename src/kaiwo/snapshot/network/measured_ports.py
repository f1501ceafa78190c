"""What agents measure about network ports: which are down, and how busy they are.

In:    events.   Out: topologies in which a port that is down is dead, and nodes that no working port connects.
A port belongs to the attachment that names its device. Where none does, ports and attachments are matched in order, if
there are as many of both; otherwise nothing is known about single attachments.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kaiwo.model.events import Event, PortsMeasured
from kaiwo.model.network.port import NetworkPort, has_same_links
from kaiwo.model.network.topology import Attachment, PortsDown, Topology
from kaiwo.snapshot.network.topology_tables import node_aliases

if TYPE_CHECKING:
    from kaiwo.snapshot.cluster_state import ClusterState

Ports = Mapping[str, tuple[NetworkPort, ...]]  # by node


def ports_measured(state: "ClusterState", event: PortsMeasured) -> None:
    """Traffic alone changes no domain, and nothing that waits is tried again for it."""
    has_other_links = False
    for node, ports in event.ports.items():
        before = state.ports.pop(node, ())
        if ports:
            state.ports[node] = ports
        has_other_links = has_other_links or not has_same_links(before, ports)
    if has_other_links:
        state.topologies_stale.update(state.topology_objects)
        state.is_cycle_due = True  # something was cut off, or can be reached again
        state.retry_all_classes()


def ports_event(state: "ClusterState") -> Iterable[Event]:
    if state.ports:
        yield PortsMeasured(dict(sorted(state.ports.items())))


def live_topology(topology: Topology, ports: Ports, nodes: Iterable[str]) -> Topology:
    """The topology with the ports that do not work, and with the nodes that have none left."""
    if not ports:
        return topology
    if not topology.attachments:
        down = tuple(_ports_down(node, ports[node]) for node in sorted(ports))
        return replace(topology, ports_down=tuple(each for each in down if each.down))
    known = node_aliases(sorted(nodes))
    by_node: dict[str, list[int]] = {}
    for at, port in enumerate(topology.attachments):
        if (name := known.get(port.node)) in ports and name is not None:
            by_node.setdefault(name, []).append(at)
    attachments = list(topology.attachments)
    for node, places in sorted(by_node.items()):
        for at, own in _matched([attachments[at] for at in places], ports[node]):
            attachments[places[at]] = _with_ports(attachments[places[at]], own)
    return replace(topology, attachments=tuple(attachments))


def _matched(
    attachments: Sequence[Attachment], ports: Sequence[NetworkPort]
) -> Iterable[tuple[int, list[NetworkPort]]]:
    """The number of each attachment of a node, and its ports."""
    by_device = {port.device: port for port in ports}
    if all(each.devices for each in attachments) and all(
        device in by_device for each in attachments for device in each.devices
    ):
        for at, each in enumerate(attachments):
            yield at, [by_device[device] for device in each.devices]
        return
    if sum(each.count for each in attachments) != len(ports):
        return
    left = list(ports)
    for at in sorted(range(len(attachments)), key=lambda at: (attachments[at].rail, attachments[at].domain)):
        taken, left = left[: attachments[at].count], left[attachments[at].count :]
        yield at, taken


def _with_ports(attachment: Attachment, ports: Sequence[NetworkPort]) -> Attachment:
    down = sum(not port.is_up for port in ports)
    dead = min(attachment.count, max(attachment.dead, down))
    return attachment if dead == attachment.dead else replace(attachment, dead=dead)


def _ports_down(node: str, ports: Sequence[NetworkPort]) -> PortsDown:
    """A port that was never connected is no failure: the node uses others."""
    used = [port for port in ports if port.was_up]
    return PortsDown(node, sum(not port.is_up for port in used), len(used))
