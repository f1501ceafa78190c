"""A network topology: levels of domains, the links between them, and how each node is attached.

A level is read from a node label, from the domains that a source writes down (a Slurm file, a dump of the fabric, a
KaiwoTopology), or from both. The tables in `snapshot/network` turn either into the same arrays. Rates are MB/s in one
direction (400 Gbit/s are 50,000 MB/s); 0 means that the rate is not known.
"""

from enum import StrEnum

import msgspec

MB_S_PER_GBIT = 125
NO_RAIL = -1


class TopologyLevel(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One level, such as spine or leaf."""

    name: str
    node_label: str = ""  # nodes with the same value are in one domain; empty: only written domains count
    uplink_mb_s: int = 0  # of one link out of a domain of this level, unless links say otherwise; 0: not known
    uplinks: int = 0  # how many such links each domain has


class Domain(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Nodes, or narrower domains, that share a switch, a rack or a block. Its name is unique in its topology."""

    name: str
    level: str
    parents: tuple[str, ...] = ()  # wider domains; in a tree there is at most one
    nodes: tuple[str, ...] = ()  # directly in it; a node may be in several domains of a level (rails)


class NetworkLink(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Equal parallel links between two domains, or between a domain and a switch above it."""

    lower: str  # a domain
    upper: str  # a wider domain, or a switch that is no domain, such as a spine that every leaf is connected to
    mb_s: int = 0  # of one link
    count: int = 1  # links that should work
    dead: int = 0  # of them, those that are down
    used_mb_s: int = 0  # current traffic of all links together, in the busier direction

    @property
    def live_mb_s(self) -> int:
        """What the working links carry together."""
        return self.mb_s * max(0, self.count - self.dead)

    @property
    def state(self) -> str:
        if not self.dead:
            return "up"
        return "degraded" if self.dead < self.count else "down"


class Attachment(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The ports that connect a node to one domain. The node counts as one of the domain's nodes."""

    node: str
    domain: str
    rail: int = NO_RAIL  # which of the node's rails; NO_RAIL: the network has none, or it is not known
    mb_s: int = 0  # of one port
    count: int = 1  # ports that should work
    dead: int = 0
    used_mb_s: int = 0
    devices: tuple[str, ...] = ()  # of the node, such as `mlx5_0`; empty: not known

    @property
    def live_mb_s(self) -> int:
        return self.mb_s * max(0, self.count - self.dead)


class PortsDown(msgspec.Struct, gc=False, frozen=True):
    """A node some of whose ports do not work."""

    node: str
    down: int
    count: int  # ports that worked at some time


class FindingKind(StrEnum):
    """Codes of findings. They are API: never renamed, never reused."""

    CONTRADICTION = "contradiction"  # two sources, or two lines of one, disagree
    MISSING_LEAF = "missing-leaf"  # the other units have a leaf on this rail
    MISSING_LINKS = "missing-links"  # fewer links than the other switches of its tier have
    OVERSUBSCRIBED = "oversubscribed"  # the nodes below can send more than the links up can carry
    MIXED_RAILS = "mixed-rails"  # a node's adapter is cabled to another rail than its neighbours'
    UNNAMED_PORT = "unnamed-port"  # no node is known for a port
    UNKNOWN_NODES = "unknown-nodes"  # a source names nodes that the cluster does not have
    NOT_CONNECTED = "not-connected"  # a switch below no other, where there are wider ones
    IGNORED = "ignored"  # something that was read and has no meaning here


class TopologyFinding(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """One thing about the network that people should know."""

    kind: FindingKind
    subject: str  # the switch, node or label that it is about
    detail: str  # a clause that follows the subject: "has 18 node ports and 15 links up (1.20:1)"


class DomainAccess(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Domains that only some work may use. A domain in several rules is open to the work of all of them."""

    domains: tuple[str, ...]  # of any level
    queues: tuple[str, ...] = ()  # with all below them
    namespaces: tuple[str, ...] = ()  # neither: closed to all


class Topology(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source's picture of the network."""

    name: str
    levels: tuple[TopologyLevel, ...]  # the widest first
    domains: tuple[Domain, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    links: tuple[NetworkLink, ...] = ()
    source: str = ""  # where it was read, for people: "node labels", "ibnetdiscover /etc/kaiwo/fabric.out"
    findings: tuple[TopologyFinding, ...] = ()  # what reading it has found
    node_port_mb_s: int = 0  # of one network port of a node without attachments; 0: not known
    node_ports: int = 0  # how many such ports each node has
    access: tuple[DomainAccess, ...] = ()  # domains that no rule names are open to all work
    ports_down: tuple[PortsDown, ...] = ()  # as agents measure them, where no attachments are written

    def connected_domains(self) -> frozenset[tuple[str, str]]:
        """Pairs of domains with a working path of one link, or of two links over one switch; each in both orders."""
        below: dict[str, set[str]] = {}
        for link in self.links:
            if link.dead < link.count:
                below.setdefault(link.upper, set()).add(link.lower)
        known = {domain.name for domain in self.domains}
        pairs: set[tuple[str, str]] = set()
        for upper, lower in below.items():
            group = sorted(lower | ({upper} & known))
            pairs.update((one, other) for one in group for other in group if one != other)
        return frozenset(pairs)
