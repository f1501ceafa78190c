"""`kaiwo trends`: whether use and waiting rise or fall."""

import click

from kaiwo.api.views.advice import TrendsView, TrendView
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, thousandths

COLUMNS = ("OF", "MEASURE", "BEFORE", "NOW", "CHANGE", "PER DAY", "FULL IN")
WORDS = {"gpu_used_milli": "GPUs in use", "waiting": "waiting"}


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def trends(output: str) -> None:
    """Show whether use and waiting rise or fall, of the cluster and of queues.

    Compared are the means of this week and of the week before; with less history, of its two halves. FULL IN says
    when the use reaches the cluster's GPUs, or the quota of a queue, if it goes on like this.

    \b
    Examples:
      kaiwo trends
      kaiwo trends -o json
    """
    server = connect_server()
    body = server.get("/trends")
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, TrendsView)
    if not view.items:
        printing.hint("there is no trend yet: two days of history are needed")
        return
    printing.print_table(text_columns(COLUMNS, numbers=COLUMNS[2:]), [_row(each) for each in view.items])
    printing.hint(f"means of {count(view.items[0].span_h, 'hour')}, against as many before them")


def _row(each: TrendView) -> list[str]:
    is_gpu = each.measure == "gpu_used_milli"
    write = thousandths if is_gpu else str
    name = "cluster" if each.kind == "cluster" else f"queue {each.name}"
    change = f"{100 * (each.now - each.before) / each.before:+.0f} %" if each.before else "-"
    full = "-" if each.full_in_days is None else count(each.full_in_days, "day")
    numbers = (write(each.before), write(each.now), change, write(each.per_day), full)
    return [name, WORDS.get(each.measure, each.measure), *numbers]
