"""`kaiwo advice`: changes that help, with what each brings and how that was checked."""

import click

from kaiwo.api.views.advice import AdviceListView
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import one_line
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count

PATIENCE_S = 120.0


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def advice(output: str) -> None:
    """Show changes that help. Each was tried on a copy of the cluster, and nothing is changed.

    Advice is about requests that ask for more than the same work used before, quotas that are not used, moves that
    make room, and partition modes. Shown is only what makes work start sooner or frees GPUs, and lets nobody wait
    longer. Limits, closed nodes and reservations stay as they are.

    \b
    Examples:
      kaiwo advice
      kaiwo advice -o json
    """
    server = connect_server()
    body = server.get_when_ready("/advice", AdviceListView, PATIENCE_S)
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, AdviceListView)
    if view.is_pending:
        printing.hint("advice is still being looked for; ask again")
        return
    for number, each in enumerate(view.items, 1):
        click.echo(f"{number}. {one_line(each.kind)}: {one_line(each.what)}")
        click.echo(f"   gain      {one_line(each.gain)}")
        click.echo(f"   evidence  {one_line(each.evidence)}")
        if each.command:
            click.echo(f"   command   {one_line(each.command)}")
    if not view.items:
        tried = f"{count(view.tried, 'change')} tried, none of them helps" if view.tried else "nothing to try"
        printing.hint(f"no advice: {tried}")
    elif view.refused:
        printing.hint(f"{view.refused} of {count(view.tried, 'change')} tried would not help, or would harm others")
    if not view.is_whole:
        printing.hint("not everything could be tried in time")
    if view.hidden:
        printing.hint(view.hidden)
