"""`kaiwo recovery`: show what failed, who lost pods to it, what is done about it, and how long it took."""

from datetime import UTC, datetime

import click

from kaiwo.api.views.recovery import FailureView, RecoveryItemView, RecoveryView, RestingNodeView
from kaiwo.cli.lists.columns import NUMBER, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import duration

NAMED = 3  # names in a cell
PAST = 10  # recoveries that are shown by default

FAILURES = (
    Column("FAILED", lambda row, _: f"{row.gpu} of {row.name}" if row.gpu else row.name),
    Column("KIND", lambda row, _: row.domain or row.kind),
    Column("SINCE", lambda row, now_s: f"{duration(max(0, now_s - row.since_s))} ago"),
    Column("FENCED", lambda row, _: "yes" if row.fenced else "no", is_state=True),
    Column("WORKLOADS", lambda row, _: _names(row.workloads)),
    Column("REASON", lambda row, _: row.reason),
)
RESTING = (
    Column("NODE", lambda row, _: row.name),
    Column("FAILURES", lambda row, _: str(row.failures), NUMBER),
    Column("REASON", lambda row, _: row.reason),
    Column("TAKES WORK IN", lambda row, now_s: duration(max(0, row.until_s - now_s))),
)
RECOVERIES = (
    Column("WORKLOAD", lambda row, _: short_name(row.workload)),
    Column("CAUSE", lambda row, _: _names(row.causes)),
    Column("WAY", lambda row, _: row.way, is_state=True),
    Column("LOST", lambda row, _: str(len(row.lost)), NUMBER),
    Column("MOVED", lambda row, _: str(len(row.moved)), NUMBER),
    Column("OTHERS", lambda row, _: _names([short_name(name) for name in row.others])),
    Column("TOOK", lambda row, _: duration(row.took_s), NUMBER),
    Column("STATE", lambda row, _: _state(row), is_state=True),
)


@click.command(cls=Verb)
@click.option("--all", "everything", is_flag=True, help="Show all past recoveries, not only the last 10.")
@printing.output_option("table", "json", "yaml")
def recovery(everything: bool, output: str) -> None:
    """Show failures and recoveries: what failed, who lost pods to it, what is done about it, and how long it took.

    WAY is how a workload gets its lost pods back. fence: it waits until it is certain that they do not run any more.
    replace: only they get other places. swap: other pods move, as few as possible. move: all its pods move to another
    domain. wait: nothing has room for them yet; kaiwo why says what is missing.

    Nodes that came and went, or that are far slower than the others, take no new work for a while.

    \b
    Examples:
      kaiwo recovery
      kaiwo recovery --all -o json
    """
    server = connect_server()
    body = server.get("/recovery")
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, RecoveryView)
    _print("Failed", FAILURES, view.failures, view.as_of_s)
    _print("Takes no work", RESTING, view.resting, view.as_of_s)
    _print("Recovering", RECOVERIES, view.current, view.as_of_s)
    for each in view.current:
        click.echo(printing.wrap(f"{short_name(each.workload)}: {each.answer}"))
    shown = view.past if everything else view.past[:PAST]
    _print("Recovered", RECOVERIES, shown, view.as_of_s)
    if not (view.failures or view.resting or view.current or view.past):
        click.echo("Everything works: no node, GPU or link has failed since Kaiwo started.")


def _print(
    title: str,
    columns: tuple[Column, ...],
    rows: list[FailureView] | list[RestingNodeView] | list[RecoveryItemView],
    now_s: int,
) -> None:
    if rows:
        click.echo(printing.bold(f"{title}:"))
        printing.print_table(columns, [table_row(columns, row, now_s) for row in rows])


def _state(row: RecoveryItemView) -> str:
    if not row.ended_s:
        return "recovering"
    ended = datetime.fromtimestamp(row.ended_s, UTC).astimezone().strftime("%H:%M:%S")
    return f"whole at {ended}" if row.whole else f"ended at {ended}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
