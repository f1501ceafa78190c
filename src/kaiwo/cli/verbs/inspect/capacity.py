"""`kaiwo capacity`: how long work would wait with more nodes."""

import click

from kaiwo.api.views.advice import CapacityOutlookView, CapacityView
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import given_fields
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, rounded_duration

PATIENCE_S = 180.0
COLUMNS = ("ADD", "MODEL", "GPUS", "P50 WAIT", "P90 WAIT", "MEAN WAIT", "STARTED", "IN USE")


@click.command(cls=Verb)
@click.option("--add-nodes", "nodes", multiple=True, metavar="COUNT[:MODEL]",
              help="Number of nodes to add, such as 4 or 4:H100; repeat it (default: 1, 2, 4 and 8).")  # fmt: skip
@click.option("--growth", type=click.IntRange(0, 1000), default=0, show_default=True, metavar="PERCENT",
              help="How much more work arrives than in the last day.")  # fmt: skip
@printing.output_option("table", "json", "yaml")
def capacity(nodes: tuple[str, ...], growth: int, output: str) -> None:
    """Show how long work would wait with more nodes. Nothing is changed.

    A copy of the cluster runs forward with each choice: what waits now, and the arrivals of the last day once more,
    with expected run times. Nodes are like those of the cluster, or of the model that is named.

    \b
    Examples:
      kaiwo capacity
      kaiwo capacity --add-nodes 8 --add-nodes 8:H100
      kaiwo capacity --growth 30
    """
    server = connect_server()
    asked = given_fields({"nodes": list(nodes), "growth": growth})
    body = server.get_when_ready("/capacity", CapacityView, PATIENCE_S, asked)
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, CapacityView)
    if view.is_pending:
        printing.hint("the plan is still being computed; ask again")
        return
    if not view.waiting + view.arriving:
        printing.hint("nothing waits, and arrivals are known after an hour: there is nothing to plan for")
        return
    printing.print_table(text_columns(COLUMNS, numbers=("ADD", *COLUMNS[2:])), [_row(each) for each in view.outlooks])
    click.echo()
    before, *others = view.outlooks
    for each in others:
        with_what = f"with {count(each.add_nodes, 'more node')} of {each.model}"
        click.echo(
            f"{with_what} p90 wait is {rounded_duration(each.p90_wait_s)}"
            if each.p90_wait_s >= before.p90_wait_s
            else f"{with_what} p90 wait falls from {rounded_duration(before.p90_wait_s)} to "
            f"{rounded_duration(each.p90_wait_s)}"
        )
    grown = f", {view.growth_percent} % more than in the last day" if view.growth_percent else ""
    printing.hint(f"{view.waiting} waiting and {count(view.arriving, 'expected arrival')} of a day{grown}")
    if view.unknown:
        printing.hint(f"nobody knows how long {count(view.unknown, 'workload')} will run; they are left out")
    if not view.is_whole:
        printing.hint("not every choice could be tried in time")


def _row(each: CapacityOutlookView) -> list[str]:
    waits = (each.p50_wait_s, each.p90_wait_s, each.mean_wait_s)
    return [
        str(each.add_nodes), each.model or "-", str(each.gpus), *map(rounded_duration, waits),
        f"{each.started:.0%}", f"{each.utilisation:.0%}",
    ]  # fmt: skip
