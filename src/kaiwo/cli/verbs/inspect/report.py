"""`kaiwo report`: the GPU-hours of queues and users."""

import csv
import sys
from collections.abc import Sequence

import click
import msgspec

from kaiwo.api.views.report import ConsumptionView, ReportView
from kaiwo.cli.name_completion import complete_queue, resolve_user
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import given_fields, parse_duration
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError

GROUPINGS = ("month", "day", "queue", "user")
NUMBERS = ("asked_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "unmeasured_gpu_hours")


@click.command(cls=Verb)
@click.option(
    "--by",
    default="month,queue,user",
    show_default=True,
    metavar="LIST",
    help="Group by month, day, queue or user; several as a,b.",
)
@click.option("--since", default="365d", show_default=True, metavar="TIME", help="How far back; 800 days are kept.")
@click.option("-u", "--user", metavar="NAME", default="", help="Only this user; `me` for yourself.")
@click.option(
    "-q",
    "--queue",
    metavar="QUEUE",
    default="",
    shell_complete=complete_queue,
    help="Only this queue and those below it.",
)
@printing.output_option("table", "csv", "json", "yaml")
def report(by: str, since: str, user: str, queue: str, output: str) -> None:  # fmt: skip
    """Show how many GPU-hours queues and users held and used.

    Asked is what running work held. Used and wasted are known where agents measure the GPUs; the rest is unmeasured.
    Users see the sums of queues, and of people only themselves; operators and admins see everybody.

    \b
    Examples:
      kaiwo report
      kaiwo report --by user --since 30d
      kaiwo report --by month,queue -o csv > gpu-hours.csv
    """
    groups = [each for each in by.split(",") if each]
    if unknown := [each for each in groups if each not in GROUPINGS]:
        raise ConfigError(f"--by has no '{unknown[0]}'; choose from {', '.join(GROUPINGS)}")
    server = connect_server()
    query = {"by": groups, "last": parse_duration(since), "queue": queue, "user": resolve_user(user) if user else ""}
    body = server.get("/report", given_fields(query))
    view = server.decode(body, ReportView)
    columns = [
        *(name for name in ("month", "day") if name in groups), *(name for name in ("queue", "user") if name in groups)
    ]  # fmt: skip
    rows = [_row(each, columns) for each in view.rows]
    if output in ("json", "yaml"):
        printing.print_data(msgspec.json.decode(body), output)
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([[*columns, *NUMBERS], *rows])
    elif not rows:
        printing.hint(f"nobody held a GPU in the last {since}, as far as Kaiwo knows")
    else:
        numbers = ("ASKED", "USED", "WASTED", "UNMEASURED", "EFFICIENCY")
        shown = [[*row, _percent(each)] for row, each in zip(rows, view.rows, strict=True)]
        printing.print_table(text_columns((*(name.upper() for name in columns), *numbers), numbers=numbers), shown)
        printing.hint("in GPU-hours; efficiency is what was used, divided by what was measured")
    if view.hidden:
        printing.hint(view.hidden)


def _row(each: ConsumptionView, columns: Sequence[str]) -> list[str]:
    groups = {"month": each.period, "day": each.period, "queue": each.queue, "user": each.user}
    known, used = each.measured_gpu_milli_s, each.used_gpu_milli_s
    amounts = (each.held_gpu_milli_s, used, known - used, max(0, each.held_gpu_milli_s - known))
    return [*(groups[name] for name in columns), *(f"{amount / 3_600_000:.2f}" for amount in amounts)]


def _percent(each: ConsumptionView) -> str:
    known = each.measured_gpu_milli_s
    return f"{(200 * each.used_gpu_milli_s + known) // (2 * known)} %" if known else "-"
