"""`kaiwo topology`: show the network as a tree, with links, load, contradictions and who uses what."""

import click
import msgspec

from kaiwo.api.views.topology import (
    DomainAccessView,
    NetworkTopologyView,
    TopologyDomainView,
    TopologyFindingView,
    TopologyLinkView,
    TopologyView,
)
from kaiwo.cli.lists.columns import NUMBER, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import one_line
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, thousandths
from kaiwo.model.errors import NotFoundError

NAMED = 3  # workloads in a cell
LINKS = (
    Column("FROM", lambda link, _: link.lower),
    Column("TO", lambda link, _: link.upper),
    Column("LINKS", lambda link, _: f"{link.count - link.dead}/{link.count}", NUMBER),
    Column("RATE", lambda link, _: _rate(link.mb_s), NUMBER),
    Column("STATE", lambda link, _: link.state, is_state=True),
    Column("LOAD", lambda link, _: _load(link), NUMBER),
    Column("AT MOST", lambda link, _: _bound(link), NUMBER),
    Column("USED BY", lambda link, _: _names(link.used_by)),
)
DOMAINS = (
    Column("DOMAIN", lambda row, _: row[0]),
    Column("LEVEL", lambda row, _: row[1].level),
    Column("NODES", lambda row, _: str(len(row[1].nodes)), NUMBER),
    Column("GPUS", lambda row, _: thousandths(row[1].gpu_milli), NUMBER),
    Column("FREE", lambda row, _: thousandths(row[1].free_gpu_milli), NUMBER),
    Column("LINKS UP", lambda row, _: _links(row[1]), NUMBER),
    Column("RATIO", lambda row, _: _ratio(row[1].oversubscription_milli), NUMBER),
    Column("SHARE", lambda row, _: _rate(row[1].share_mb_s), NUMBER),
    Column("ASKED", lambda row, _: _rate(row[1].asked_mb_s), NUMBER),
    Column("SENT", lambda row, _: _rate(row[1].sent_mb_s) if row[1].sent_mb_s >= 0 else "", NUMBER),
    Column("SPEED", lambda row, _: f"{row[1].speed_percent} %" if row[1].speed_percent else "", NUMBER),
    Column("USED BY", lambda row, _: _names(row[1].used_by)),
)
PORTS = (
    Column("NODE", lambda port, _: port.node),
    Column("DEVICE", lambda port, _: port.device),
    Column("PORT", lambda port, _: str(port.number), NUMBER),
    Column("STATE", lambda port, _: port.state, is_state=True),
    Column("RATE", lambda port, _: _rate(port.mb_s), NUMBER),
    Column(
        "LOAD",
        lambda port, _: f"{100 * port.used_mb_s // port.mb_s} %" if port.mb_s and port.used_mb_s >= 0 else "",
        NUMBER,
    ),
)


@click.command(cls=Verb)
@click.argument("name", required=False)
@click.option("--links", is_flag=True, help="Also list every link.")
@click.option("--ports", is_flag=True, help="Also list every port that node agents measure.")
@printing.output_option("table", "json", "yaml")
def topology(name: str | None, links: bool, ports: bool, output: str) -> None:
    """Show the network: the domains as a tree, their links up and who uses them, and where the sources disagree.

    RATIO is what the nodes of a domain can send, divided by what its links carry. SHARE is what each node gets of
    them, if its workload also runs in other domains. ASKED is the bandwidth that workloads have asked for on these
    links (--bandwidth of kaiwo submit). USED BY names the workloads. SENT is what agents measure
    on the ports of its nodes. SPEED is how fast workloads report that they run there, compared with the usual speed.
    AT MOST is the most that a link can carry at the moment, according to these ports; traffic that stays inside the
    domain counts, too.

    \b
    Examples:
      kaiwo topology
      kaiwo topology fabric --links
      kaiwo topology -o json
    """
    server = connect_server()
    body = server.get("/topology")
    if output != "table" and name is None:
        printing.print_body(body, output)
        return
    view = server.decode(body, TopologyView)
    chosen = [each for each in view.topologies if name in (None, each.name)]
    if name is not None and not chosen:
        known = ", ".join(each.name for each in view.topologies) or "none"
        raise NotFoundError(f"there is no topology {name}; there are: {known}")
    if output != "table":
        printing.print_data(msgspec.to_builtins(chosen[0]), output)
        return
    for each in chosen:
        _print(each, links)
    shown = view.ports if ports else [port for port in view.ports if port.state != "up"]
    if shown:
        click.echo("Ports:" if ports else "Ports that are down:")
        printing.print_table(PORTS, [table_row(PORTS, port, 0) for port in shown])
        click.echo()
    _print_findings("Contradictions between sources:", view.contradictions)
    for fault in view.faults:
        click.echo(printing.wrap(f"Not read: {fault}"))
    if not chosen and not view.faults:
        click.echo("No topology is known: no node has a label of a known tool, and no source is configured.")
        printing.hint("next: kaiwo up --topology labels=KEY,KEY, or kubectl apply a KaiwoTopology")


def _print(view: NetworkTopologyView, has_links: bool) -> None:
    levels = " > ".join(f"{level.name} ({level.domains})" for level in view.levels)
    placed = count(view.levels[-1].nodes if view.levels else 0, "node")
    title = one_line(f"Topology {view.name}, from {view.source or 'an event'}: {levels}, {placed}")
    click.echo(printing.bold(title))
    if view.fault:
        click.echo(printing.wrap(f"The source cannot be read; the last good version stays in force: {view.fault}"))
    rows = list(_tree(view.domains))
    printing.print_table(DOMAINS, [table_row(DOMAINS, row, 0) for row in rows])
    hurt = view.links if has_links else [link for link in view.links if link.state != "up"]
    if hurt:
        click.echo("\nLinks:" if has_links else "\nLinks that are not whole:")
        printing.print_table(LINKS, [table_row(LINKS, link, 0) for link in hurt])
    _print_access(view.access)
    _print_findings("Findings:", view.findings)
    click.echo()


def _print_access(rules: list[DomainAccessView]) -> None:
    if rules:
        click.echo("\nAccess:")
    for rule in rules:
        queues = [f"{'queue' if len(rule.queues) == 1 else 'queues'} {', '.join(rule.queues)}"] if rule.queues else []
        spaces = "namespace" if len(rule.namespaces) == 1 else "namespaces"
        named = [f"{spaces} {', '.join(rule.namespaces)}"] if rule.namespaces else []
        who = f"only for {' and '.join([*queues, *named])}" if queues or named else "closed to all work"
        click.echo(printing.wrap(f"  {', '.join(rule.domains)}: {who}"))


def _tree(domains: list[TopologyDomainView]) -> list[tuple[str, TopologyDomainView]]:
    """Domains below the first of their parents, indented."""
    by_name = {domain.name for domain in domains}
    below: dict[str, list[TopologyDomainView]] = {}
    for domain in domains:
        above = next((name for name in domain.parents if name in by_name and name != domain.name), "")
        below.setdefault(above, []).append(domain)
    found: list[tuple[str, TopologyDomainView]] = []
    left = [("", domain) for domain in reversed(below.get("", []))]
    while left:
        indent, domain = left.pop()
        found.append((indent + domain.name, domain))
        left += [(indent + "  ", each) for each in reversed(below.pop(domain.name, []))]
    return found


def _print_findings(title: str, findings: list[TopologyFindingView]) -> None:
    if findings:
        click.echo(f"\n{title}")
        for each in findings:
            click.echo(printing.wrap(f"  {each.kind}: {each.subject} {each.detail}"))


def _links(domain: TopologyDomainView) -> str:
    if not domain.links and not domain.dead_links:
        return ""
    total = domain.links + domain.dead_links
    return f"{domain.links}/{total}" if domain.dead_links else str(total)


def _ratio(milli: int) -> str:
    hundredths = -(-milli // 10)
    return f"{hundredths // 100}.{hundredths % 100:02d}:1" if milli else ""


def _rate(mb_s: int) -> str:
    return f"{mb_s / 1000:.1f} GB/s" if mb_s else ""


def _load(link: TopologyLinkView) -> str:
    live = link.mb_s * (link.count - link.dead)
    busy = link.used_mb_s or link.asked_mb_s  # measured, else what workloads have asked for
    return f"{100 * busy // live} %" if live and busy else ""


def _bound(link: TopologyLinkView) -> str:
    live = link.mb_s * (link.count - link.dead)
    return f"{-(-100 * link.most_mb_s // live)} %" if live and link.most_mb_s >= 0 else ""


def _names(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {count(more, 'other')}" if more > 0 else "")
