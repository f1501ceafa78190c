"""`kaiwo scale`: the demand for GPUs, the nodes that are needed for it, and the nodes that may go."""

from datetime import UTC, datetime

import click

from kaiwo.api.views.scale import HourNeedView, ModelNeedView, ScaleView
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, rounded_duration

COLUMNS = ("MODEL", "NODES", "GPUS", "HELD", "WAITING", "ADD NOW", "ADD LATER", "FIRST NEEDED", "MAY GO")
HOURS = ("MODEL", "HOUR (UTC)", "EXPECTED", "HIGH", "ADD")
DAY_HOURS, KNOWN_HOURS = 24, 36  # a day ahead is known after 36 hours
NAMED = 8


@click.command(cls=Verb)
@click.option("--hours", is_flag=True, help="Also list the forecast of each hour.")
@printing.output_option("table", "json", "yaml")
def scale(hours: bool, output: str) -> None:
    """Show how many nodes of which GPU model are needed when, and which nodes may go. It changes nothing.

    ADD NOW is for work that waits now, as far as its queues' limits allow it. ADD LATER is the most that any of the
    next 24 hours needs if its demand is high. MAY GO counts empty nodes that none of these hours needs; nodes with
    reservations or planned starts never count.

    \b
    Examples:
      kaiwo scale
      kaiwo scale --hours
      kaiwo scale -o json
    """
    server = connect_server()
    body = server.get("/scale")
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, ScaleView)
    printing.print_table(
        text_columns(COLUMNS, numbers=COLUMNS[1:7]), [_row(each, view.as_of_s) for each in view.models]
    )
    if hours and any(each.hours for each in view.models):
        click.echo()
        rows = [_hour(each.model, hour) for each in view.models for hour in each.hours]
        printing.print_table(text_columns(HOURS, numbers=HOURS[2:]), rows)
    click.echo()
    for each in view.models:
        click.echo(_sentence(each))


def _row(each: ModelNeedView, now_s: int) -> list[str]:
    first = "-"
    if each.add_nodes_at_s:
        first = "now" if each.add_nodes_at_s <= now_s else f"in {rounded_duration(each.add_nodes_at_s - now_s)}"
    later = str(each.add_nodes_later) if each.hours else "-"
    numbers = (each.nodes, each.gpus, each.held_gpus, each.waiting_gpus, each.add_nodes)
    may_go = str(len(each.may_go)) if len(each.hours) == DAY_HOURS else "-"
    return [each.model, *map(str, numbers), later, first, may_go]


def _hour(model: str, hour: HourNeedView) -> list[str]:
    begins = datetime.fromtimestamp(hour.begins_s, UTC).strftime("%a %H:%M")
    return [model, begins, str(hour.expected_gpus), str(hour.high_gpus), str(hour.add_nodes)]


def _sentence(each: ModelNeedView) -> str:
    if len(each.hours) < DAY_HOURS:
        seen = count(each.hours_seen, "hour")
        later = f"which nodes may go will be known after about {KNOWN_HOURS} hours"
        return f"{each.model}: {seen} of demand seen so far; {later}."
    if not each.may_go:
        return f"{each.model}: no node may go."
    more = f" and {len(each.may_go) - NAMED} more" if len(each.may_go) > NAMED else ""
    return f"{each.model}: {', '.join(each.may_go[:NAMED])}{more} may go."
