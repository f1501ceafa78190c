"""The network: levels, domains, links and what contradicts."""

import msgspec


class TopologyLevelView(msgspec.Struct, frozen=True):
    """One level of a topology."""

    name: str
    node_label: str  # empty: its domains are written down
    domains: int
    nodes: int  # nodes that are in one of them


class TopologyDomainView(msgspec.Struct, frozen=True):
    """A set of nodes that share a switch, a rack or a block."""

    name: str
    level: str
    parents: list[str]
    nodes: list[str]
    gpu_milli: int
    free_gpu_milli: int
    links: int  # working links up
    dead_links: int
    link_mb_s: int  # what the working links carry together; 0: not known
    port_mb_s: int  # what the ports of its nodes can send; 0: not known
    oversubscription_milli: int  # 1200: its nodes can send 1.2 times what its links carry; 0: not known
    active_nodes: int  # nodes whose workloads also run in other domains of this level
    share_mb_s: int  # what each active node gets of the links; 0: not known
    used_by: list[str]  # these workloads
    asked_mb_s: int = 0  # bandwidth that workloads have asked for on its links
    sent_mb_s: int = -1  # what agents measure on the ports of its nodes; -1: nothing
    speed_percent: int = 0  # how fast work runs on its nodes, beside the usual speed; 0: not known


class TopologyLinkView(msgspec.Struct, frozen=True):
    """Equal parallel links."""

    lower: str
    upper: str
    mb_s: int  # of one link; 0: not known
    count: int
    dead: int
    state: str  # up | degraded | down
    used_mb_s: int  # measured traffic of all of them
    used_by: list[str]  # workloads with pods below it and elsewhere
    asked_mb_s: int = 0  # bandwidth that workloads have asked for on all of them
    most_mb_s: int = -1  # they carry at most this, as follows from the ports below them; -1: not all are measured


class NetworkPortView(msgspec.Struct, frozen=True):
    """A port of a node, as its agent measures it."""

    node: str
    device: str
    number: int
    state: str  # up | down
    mb_s: int  # 0: not known
    used_mb_s: int  # current traffic in the busier direction; -1: not measured yet


class TopologyFindingView(msgspec.Struct, frozen=True):
    """One thing about the network that people should know."""

    kind: str
    subject: str
    detail: str


class DomainAccessView(msgspec.Struct, frozen=True):
    """Who may use some domains; domains that no rule names are open to all work."""

    domains: list[str]
    queues: list[str]  # with all below them
    namespaces: list[str]


class NetworkTopologyView(msgspec.Struct, frozen=True):
    """One source's picture of the network."""

    name: str
    source: str
    fault: str  # why the current version of its source is not in force; empty: it is
    levels: list[TopologyLevelView]  # the widest first
    domains: list[TopologyDomainView]
    links: list[TopologyLinkView]
    findings: list[TopologyFindingView]
    access: list[DomainAccessView] = msgspec.field(default_factory=list)


class TopologyView(msgspec.Struct, frozen=True):
    """The network: domains, links, who uses them, and where its sources disagree."""

    as_of_s: int
    topologies: list[NetworkTopologyView]
    contradictions: list[TopologyFindingView]
    faults: list[str]  # of sources that could never be read
    ports: list[NetworkPortView] = msgspec.field(default_factory=list)  # of nodes whose agents report them
