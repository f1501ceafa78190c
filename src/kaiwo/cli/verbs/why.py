"""`kaiwo why W`: why it waits, and what would start it now."""

from collections.abc import Sequence

import click

from kaiwo.api.views import ChangeView, ObstacleView, WhyView
from kaiwo.cli import printing
from kaiwo.cli.names import complete_workload
from kaiwo.cli.server import workload_path
from kaiwo.cli.verb import Verb, this_server
from kaiwo.cli.words import amount, count, full_name


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@printing.output_option("table", "json", "yaml")
def why(name: str, output: str) -> None:
    """Say why a workload waits, all that is in its way, and the cheapest change that would start it now.

    \b
    Examples:
      kaiwo why train
      kaiwo why team/train -o json
    """
    server = this_server()
    body = server.get(f"{workload_path(full_name(name))}/why")
    view = server.decode(body, WhyView)
    if output != "table":
        printing.print_raw(body, output)
        return
    click.echo(printing.bold(printing.wrap(view.answer)))
    if view.position:
        click.echo(printing.wrap(_place(view)))
    if view.obstacles:
        click.echo("\nIn its way:")
        print_obstacles(view.obstacles)
    if view.change:
        _print_change(view.change)
    elif view.no_change and view.obstacles:
        click.echo("\n" + printing.wrap(f"Nothing starts it now: {view.no_change}"))


def print_obstacles(obstacles: Sequence[ObstacleView]) -> None:
    """Each with need, have and remedy."""
    for obstacle in obstacles:
        click.echo(printing.wrap(obstacle.sentence, "- ", "  "))
        facts = []
        if obstacle.need or obstacle.have:
            facts.append(f"need {amount(obstacle.need, obstacle.unit)}, have {amount(obstacle.have, obstacle.unit)}")
        if obstacle.remedy:
            facts.append(f"what helps: {obstacle.remedy}")
        if facts:
            click.echo(printing.wrap("; ".join(facts), "    "))


def _place(view: WhyView) -> str:
    ahead = f"{count(view.ahead, 'workload')} tried before it" if view.ahead else "nothing is tried before it"
    return f"It is number {view.position} of its queue; {ahead}."


def _print_change(change: ChangeView) -> None:
    who = " (an admin must do this)" if change.by == "admin" else ""
    click.echo("\n" + printing.wrap(f"To start it now{who}: {change.sentence}"))
    if change.command:
        click.echo(f"    {change.command}")
