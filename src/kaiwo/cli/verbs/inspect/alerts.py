"""`kaiwo alerts`: what fires, what did, the rules, silences and channels; check a file of rules."""

from pathlib import Path

import click
import msgspec

from kaiwo.api.views.alerts import (
    AlertChannelView,
    AlertRulesView,
    AlertsView,
    AlertView,
    PastAlertsView,
    SilenceView,
)
from kaiwo.api.views.answers import Page
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import parse_duration
from kaiwo.cli.output.table_layout import Column, text_columns
from kaiwo.cli.verb_base import VerbGroup, connect_server, reason_option, reason_query, run_for_each
from kaiwo.model.amounts import count, duration, rounded_duration
from kaiwo.model.errors import ConfigError

SEVERITIES = ("info", "warning", "critical")


@click.group(cls=VerbGroup, invoke_without_command=True)
@click.option(
    "--severity",
    type=click.Choice(SEVERITIES),
    default="info",
    help="Only alerts at least this severe (default: info).",
)
@printing.output_option("table", "json", "yaml")
@click.pass_context
def alerts(ctx: click.Context, severity: str, output: str) -> None:
    """Show the alerts that fire and those that are about to, the worst first.

    Kaiwo evaluates its rules every ten seconds. docs/alerts.md lists the built-in rules, and says how to add your own
    and where alerts are sent.

    \b
    Examples:
      kaiwo alerts
      kaiwo alerts history --since 24h
      kaiwo alerts rules
      kaiwo alerts check alerts.yaml
      kaiwo alerts silence gpu-hot --subject 'node-3/*' --for 2h --reason "new fans on Monday"
    """
    if ctx.invoked_subcommand is not None:
        return
    server = connect_server()
    body = server.get("/alerts", {"severity": severity})
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, AlertsView)
    if view.alerts:
        columns = _columns("SEVERITY", "STATE", "RULE", "FOR", "SUMMARY")
        printing.print_table(columns, [_row(each, view.now_s) for each in view.alerts])
        actions = {each.rule: each.action for each in view.alerts if each.action and each.fired_s}
        for rule, action in actions.items():
            printing.hint(f"{rule}: {action}")
    else:
        printing.hint(f"Nothing fires: all {count(view.rules, 'rule')} are quiet.")
    if view.problem:
        printing.hint(f"The file of rules has changed and can't be used: {view.problem}")


@alerts.command()
@click.option("--since", metavar="TIME", default="7d", help="How far back (default: 7d; at most 30d).")
@click.option("--rule", metavar="RULE", default="", help="Only alerts of this rule.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 5000), default=100, help="Show at most N.")
@printing.output_option("table", "json", "yaml")
def history(since: str, rule: str, limit: int, output: str) -> None:
    """Show resolved alerts, the latest first.

    \b
    Example:
      kaiwo alerts history --since 24h --rule gpu-hot
    """
    server = connect_server()
    query: dict[str, str | int] = {"last": parse_duration(since), "limit": limit}
    body = server.get("/alerts/history", query | ({"rule": rule} if rule else {}))
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, PastAlertsView)
    if not view.alerts:
        printing.hint("No alerts were resolved in that time.")
        return
    rows = [
        [each.severity.value, each.rule, f"{rounded_duration(view.now_s - each.fired_s)} ago",
         rounded_duration(each.resolved_s - each.fired_s), each.quiet or "yes", each.summary]
        for each in view.alerts
    ]  # fmt: skip
    printing.print_table(_columns("SEVERITY", "RULE", "FIRED", "LASTED", "TOLD", "SUMMARY"), rows)


@alerts.command()
@printing.output_option("table", "json", "yaml")
def rules(output: str) -> None:
    """List the rules that are evaluated."""
    server = connect_server()
    body = server.get("/alerts/rules")
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, AlertRulesView)
    rows = [
        [each.name, each.severity.value, each.of, duration(each.for_s) if each.for_s else "-", str(each.firing),
         each.compares]
        for each in view.rules
    ]  # fmt: skip
    printing.print_table(_columns("RULE", "SEVERITY", "OF", "FOR", "FIRING", "HOLDS WHEN"), rows)
    if view.problem:
        printing.hint(f"The file of rules has changed and can't be used: {view.problem}")


@alerts.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
def check(file: str) -> None:
    """Check a file of rules and channels, without a server. Exits with 2 if it is wrong.

    \b
    Example:
      kaiwo alerts check alerts.yaml
    """
    from kaiwo.runtime.alerting.load_settings import load_alert_settings

    if not Path(file).exists():
        raise ConfigError(f"there is no file {file}; name a file with alert rules")
    settings = load_alert_settings(file)
    own = sum(not rule.is_built_in for rule in settings.rules)
    built_in = len(settings.rules) - own
    click.echo(
        f"{file} is right: {count(own, 'rule')} of yours, {built_in} of Kaiwo's own, "
        f"{count(len(settings.channels), 'channel')}"
    )


@alerts.command()
@click.argument("rule", metavar="RULE")
@click.option("--subject", metavar="NAME", default="*", help="Only about this subject, such as 'node-3/*'.")
@click.option("--for", "length", metavar="TIME", default="2h", help="How long (default: 2h; at most 90d).")
@reason_option()
@printing.output_option("table", "json", "yaml")
def silence(rule: str, subject: str, length: str, reason: str, output: str) -> None:
    """Send no messages about some alerts for a while. They are still listed.

    \b
    Example:
      kaiwo alerts silence 'gpu-*' --subject 'node-3/*' --for 4h --reason "the node is being repaired"
    """
    server = connect_server()
    form = {"rule": rule, "subject": subject, "for_s": parse_duration(length)}
    body = server.post("/alerts/silences", form, reason_query(reason))
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, SilenceView)
    lasts = duration(view.until_s - view.made_s)
    click.echo(f"silence {view.id}: no messages about {view.rule} of {view.subject} for {lasts}")


@alerts.command()
@printing.output_option("table", "json", "yaml")
def silences(output: str) -> None:
    """List silences that have not ended."""
    server = connect_server()
    body = server.get("/alerts/silences")
    if output != "table":
        printing.print_body(body, output)
        return
    page = server.decode(body, Page[SilenceView])
    if not page.items:
        printing.hint("There are no silences.")
        return
    rows = [
        [str(each.id), each.rule, each.subject, duration(each.until_s - each.made_s), each.by, each.reason]
        for each in page.items
    ]
    printing.print_table(_columns("ID", "RULE", "SUBJECT", "FOR", "BY", "REASON"), rows)


@alerts.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@reason_option()
def unsilence(ids: tuple[str, ...], reason: str) -> int:
    """End silences. Messages about what still fires are sent then."""
    server = connect_server()

    def end(number: str) -> None:
        path = object_path("alerts/silences", number)
        view = server.decode(server.send("DELETE", path, reason_query(reason)), SilenceView)
        click.echo(f"silence {view.id} of {view.rule} has ended")

    return run_for_each(ids, end)


@alerts.command()
@printing.output_option("table", "json", "yaml")
def channels(output: str) -> None:
    """List the channels that alerts are sent to, and whether messages arrive."""
    server = connect_server()
    body = server.get("/alerts/channels")
    if output != "table":
        printing.print_body(body, output)
        return
    page = server.decode(body, Page[AlertChannelView])
    if not page.items:
        printing.hint("Alerts are sent to nobody; name channels in the --alerts file (docs/alerts.md).")
        return
    rows = [
        [each.name, each.type, each.target, each.severity.value, str(each.waiting), str(each.delivered),
         str(each.failures), each.problem]
        for each in page.items
    ]  # fmt: skip
    printing.print_table(
        _columns("CHANNEL", "TYPE", "TARGET", "FROM", "WAITING", "DELIVERED", "FAILURES", "PROBLEM"), rows
    )


@alerts.command("test")
@click.argument("channel", metavar="CHANNEL")
@reason_option()
def send_test(channel: str, reason: str) -> int:
    """Send a test message to a channel, and say whether it was accepted."""
    server = connect_server()
    body = server.post(object_path("alerts/channels", channel) + "/test", {}, reason_query(reason))
    view = server.decode(body, AlertChannelView)
    if view.problem:
        printing.hint(f"kaiwo: {channel} did not accept the message: {view.problem}")
        return 1
    click.echo(f"{channel} has accepted a test message")
    return 0


def _columns(*titles: str) -> list[Column]:
    """The last one is prose."""
    numbers = ("FOR", "FIRED", "LASTED", "FIRING", "WAITING", "DELIVERED", "FAILURES", "ID")
    columns = text_columns(titles, numbers)
    return [*columns[:-1], msgspec.structs.replace(columns[-1], is_prose=True)]


def _row(alert: AlertView, now_s: int) -> list[str]:
    state = alert.state.value + (f" ({alert.quiet})" if alert.quiet else "")
    return [alert.severity.value, state, alert.rule, rounded_duration(max(0, now_s - alert.since_s)), alert.summary]
