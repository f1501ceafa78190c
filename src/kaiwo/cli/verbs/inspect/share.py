"""`kaiwo share`: show how fair shares are computed, and which queue is next."""

import click

from kaiwo.api.views.answers import Page
from kaiwo.api.views.queues import ShareView, TurnView
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.read_object import server_time
from kaiwo.cli.name_completion import complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import short_duration, thousandths

TITLES = {"gpu": "GPUs", "cpu": "CPUs", "memory": "memory"}
NEXT = ("NEXT", "QUEUE", "OVER SHARE", "OVER QUOTA", "PRIORITY", "DOMINANT SHARE WITH IT", "NOW", "WORKLOAD", "GPUS")
LINE = ("WORKLOAD", "PRIORITY", "AGE", "KEYS")
NUMBERS = ("NEXT", "PRIORITY", "DOMINANT SHARE WITH IT", "NOW", "GPUS")
NO_SHARE_PPM = 1 << 50  # above every ratio: the queue uses a resource of which it has no share


@click.command(cls=Verb)
@click.argument("name", required=False, metavar="[QUEUE]", shell_complete=complete_queue)
@printing.output_option("table", "wide", "json", "yaml")
def share(name: str | None, output: str) -> None:
    """Show how fair shares are computed, term by term, and which queue is next.

    A queue first gets the smallest of its quota, its demand and its limit. The rest is divided by priority and weight
    among the siblings that want more, rounded down to whole GPUs; GPUs left over by rounding go to the largest
    fractions, one each. Without QUEUE, the GPUs of all queues are shown; -o wide adds CPUs and memory.

    \b
    Examples:
      kaiwo share
      kaiwo share lab
      kaiwo share lab -o json
    """
    server = connect_server()
    if output in ("json", "yaml"):
        printing.print_body(server.get(object_path("shares", name) if name else "/shares"), output)
        return
    wanted = server.decode(server.get(object_path("shares", name)), ShareView) if name else None
    page = server.decode(server.get("/shares"), Page[ShareView])
    shown = page.items if wanted is None else [wanted]
    for view in shown:
        _print_share(view, is_whole=output == "wide" or wanted is not None)
    if wanted is None:
        _print_next(page.items)
        return
    _print_next([view for view in page.items if view.parent == wanted.parent])
    if wanted.line:
        _print_first_in_line(wanted, server_time(server))


def _print_share(view: ShareView, is_whole: bool) -> None:
    among = f"below {view.parent}, which" if view.parent else "a top-level queue; the top level"
    click.echo(f"{printing.bold(view.queue)}, {among} divides the rest by {view.policy}")
    for terms in view.resources if is_whole else view.resources[:1]:
        click.echo(f"  {TITLES.get(terms.resource, terms.resource)}")
        for line in terms.arithmetic:
            click.echo(printing.wrap(line, "    ", " " * 6))
    click.echo(printing.wrap(f"reclaim: {view.reclaim}", "  ", " " * 4))
    click.echo()


def _print_next(views: list[ShareView]) -> None:
    """One table for each group of siblings; the first row is the queue that is next."""
    groups: dict[str, list[tuple[ShareView, TurnView]]] = {}
    for view in views:
        if view.turn is not None:
            groups.setdefault(view.parent, []).append((view, view.turn))
    if not groups:
        click.echo("No workload waits, so no queue is next.")
        return
    for parent, group in groups.items():
        click.echo(f"Next {f'queue below {parent}' if parent else 'top-level queue'} (by {group[0][0].policy}):")
        rows = [_turn_row(view, turn) for view, turn in sorted(group, key=lambda each: each[1].place)]
        printing.print_table(text_columns(NEXT, NUMBERS), rows, "  ")


def _print_first_in_line(view: ShareView, now: int) -> None:
    click.echo(f"\nFirst in line in {view.queue} (by {', then '.join(view.orders)}; lowest keys first):")
    rows = []
    for each in view.line:
        keys = " ".join(str(part) for key in each.keys for part in key)
        rows.append([short_name(each.workload), str(each.priority), short_duration(now - each.submitted_s), keys])
    printing.print_table(text_columns(LINE, ("PRIORITY", "AGE")), rows, "  ")


def _turn_row(view: ShareView, turn: TurnView) -> list[str]:
    return [
        str(turn.place),
        view.queue,
        "yes" if turn.is_over_share else "no",
        "yes" if turn.is_over_quota else "no",
        str(turn.priority),
        _percent(turn.dominant_with_it_ppm),
        _percent(turn.dominant_ppm),
        short_name(turn.workload),
        thousandths(turn.gpu_milli),
    ]


def _percent(ppm: int) -> str:
    if ppm >= NO_SHARE_PPM:
        return "no share"
    return f"{ppm / 10_000:.1f}".removesuffix(".0") + " %"
