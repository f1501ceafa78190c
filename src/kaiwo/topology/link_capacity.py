"""How much the nodes below each domain can send, and how much its links up can carry."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kaiwo.model.network.port import NetworkPort
from kaiwo.model.network.topology import Attachment, FindingKind, NetworkLink, Topology, TopologyFinding
from kaiwo.snapshot.network.topology_tables import node_aliases

NOT_MEASURED = -1


class DomainCapacity(NamedTuple):
    """Of one domain, in MB/s; only links that work count."""

    ports: int  # working ports of nodes
    ports_mb_s: int
    links: int  # working links up
    links_mb_s: int
    dead: int  # links up that do not work
    used_mb_s: int  # of the links up

    @property
    def oversubscription_milli(self) -> int:
        """1,000: the links carry just what the ports can send; 0: there are no links up, or their rate is unknown."""
        return -(-self.ports_mb_s * 1000 // self.links_mb_s) if self.links_mb_s else 0


def domain_capacities(attachments: Iterable[Attachment], links: Iterable[NetworkLink]) -> dict[str, DomainCapacity]:
    """By domain, for all that have ports or links."""
    found: dict[str, list[int]] = {}
    for port in attachments:
        sums = found.setdefault(port.domain, [0] * 6)
        live = max(0, port.count - port.dead)
        sums[0] += live
        sums[1] += live * port.mb_s
    for link in links:
        sums = found.setdefault(link.lower, [0] * 6)
        sums[2] += max(0, link.count - link.dead)
        sums[3] += link.live_mb_s
        sums[4] += min(link.dead, link.count)
        sums[5] += link.used_mb_s
    return {name: DomainCapacity(*sums) for name, sums in found.items()}


def most_traffic(
    topology: Topology, domain: str, nodes: Collection[str], ports: Mapping[str, Sequence[NetworkPort]]
) -> int:
    """The links out of a domain carry at most what the ports of its nodes do; -1: some port was not measured.

    What stays inside the domain is counted, too: no port tells where its traffic goes.
    """
    known = node_aliases(sorted(nodes))
    own: dict[str, set[str]] = {}  # by node: the devices that are connected to this domain, where their names are known
    for each in topology.attachments:
        if each.domain == domain and each.node in known:
            own.setdefault(known[each.node], set()).update(each.devices)
    total = 0
    for node in nodes:
        measured = ports.get(node, ())
        devices = own.get(node, set())
        if devices and devices <= {port.device for port in measured}:
            measured = [port for port in measured if port.device in devices]
        if not measured or any(port.is_up and port.used_mb_s < 0 for port in measured):
            return NOT_MEASURED
        total += sum(port.used_mb_s for port in measured if port.is_up)
    return total if nodes else NOT_MEASURED


def oversubscribed_leaves(attachments: Iterable[Attachment], links: Iterable[NetworkLink]) -> list[TopologyFinding]:
    """Domains whose nodes can send more than the links up carry."""
    return [
        TopologyFinding(
            FindingKind.OVERSUBSCRIBED,
            name,
            f"has {each.ports} node ports and {each.links} working links up "
            f"({show_ratio(each.oversubscription_milli)})",
        )
        for name, each in sorted(domain_capacities(attachments, links).items())
        if each.oversubscription_milli > 1000
    ]


def show_ratio(milli: int) -> str:
    """`1.20:1`, rounded up, so that nothing above 1:1 reads as 1.00:1."""
    hundredths = -(-milli // 10)
    return f"{hundredths // 100}.{hundredths % 100:02d}:1"
