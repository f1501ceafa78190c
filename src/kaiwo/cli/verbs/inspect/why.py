"""`kaiwo why`: explain why a workload waits, and what would start it."""

import click

from kaiwo.api.views.workloads import WhyView
from kaiwo.cli.client.api_client import ApiClient, workload_path
from kaiwo.cli.name_completion import chosen_tasks, complete_workload, first_waiting
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, short_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload_record import WorkloadState


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@printing.output_option("table", "json", "yaml")
def why(name: str, output: str) -> None:
    """Explain why a workload waits, all its obstacles, and the cheapest change that would start it now.

    Of an array, the first task that waits is explained.

    \b
    Examples:
      kaiwo why train
      kaiwo why 'sweep[10-19]'
      kaiwo why team/train -o json
    """
    server = connect_server()
    body = _answer(server, full_name(name))
    view = server.decode(body, WhyView)
    if output != "table":
        printing.print_body(body, output)
        return
    click.echo(printing.bold(printing.wrap(view.answer)))
    if view.protected:
        click.echo(printing.wrap(printing.as_sentence(view.protected)))
    if not view.obstacles:  # it runs, is about to start, or has ended
        is_waiting = view.state in (WorkloadState.WAITING, WorkloadState.HELD)
        if printing.is_terminal() and not is_waiting and not view.state.is_over:
            printing.hint(f"next: kaiwo logs -f {short_name(view.workload)}")
        return
    if view.ended_before:
        click.echo(printing.wrap(f"It ran before: {view.ended_before}."))
    if view.position:
        click.echo(printing.wrap(_position(view)))
    if view.capped_priority:
        click.echo(printing.wrap(printing.as_sentence(view.capped_priority)))
    if view.planned:
        click.echo(printing.wrap(printing.as_sentence(view.planned)))
    if view.expected:
        click.echo(printing.wrap(printing.as_sentence(view.expected)))
    click.echo("\nObstacles:")
    printing.print_obstacles(view.obstacles)
    if view.partitions:
        click.echo("\n" + printing.wrap(printing.as_sentence(view.partitions)))
    if view.change:
        admin = " (needs an administrator)" if view.change.by == "admin" else ""
        click.echo("\n" + printing.wrap(f"To start it now{admin}: {view.change.sentence}"))
        if view.change.command:
            click.echo(printing.wrap_command(view.change.command, "    "))
    elif view.no_change:
        click.echo("\n" + printing.wrap(view.no_change))


def _answer(server: ApiClient, full: str) -> bytes:
    """Of a workload, or of the first task of an array that waits; of its first task if none does."""
    if chosen_tasks(full) is not None:
        return server.get(f"{workload_path(first_waiting(server, full))}/why")
    try:
        return server.get(f"{workload_path(full)}/why")
    except NotFoundError:
        task = first_waiting(server, full)
        if not task:
            raise
        return server.get(f"{workload_path(task)}/why")


def _position(view: WhyView) -> str:
    verb = "is" if view.ahead == 1 else "are"
    ahead = f"{count(view.ahead, 'workload')} {verb} ahead of it" if view.ahead else "no workload is ahead of it"
    return f"It is number {view.position} in its queue; {ahead}."
