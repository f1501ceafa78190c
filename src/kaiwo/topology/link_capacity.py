"""How much the nodes below each domain can send, and how much its links up can carry."""

from collections.abc import Iterable
from typing import NamedTuple

from kaiwo.model.network.topology import Attachment, FindingKind, NetworkLink, TopologyFinding


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
    found: dict[str, DomainCapacity] = {}
    nothing = DomainCapacity(0, 0, 0, 0, 0, 0)
    for port in attachments:
        now = found.get(port.domain, nothing)
        live = max(0, port.count - port.dead)
        found[port.domain] = now._replace(ports=now.ports + live, ports_mb_s=now.ports_mb_s + port.live_mb_s)
    for link in links:
        now = found.get(link.lower, nothing)
        found[link.lower] = now._replace(
            links=now.links + max(0, link.count - link.dead),
            links_mb_s=now.links_mb_s + link.live_mb_s,
            dead=now.dead + min(link.dead, link.count),
            used_mb_s=now.used_mb_s + link.used_mb_s,
        )
    return found


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
