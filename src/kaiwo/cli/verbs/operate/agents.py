"""`kaiwo agents`: list node agents and when each last reported."""

import click

from kaiwo.api.views import AgentView, Page
from kaiwo.cli.lists.columns import NUMBER, row
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column, lay_out
from kaiwo.cli.verb_base import Verb, this_server

COLUMNS = (
    Column("NODE", lambda a, _: a.node),
    Column("STATE", lambda a, _: a.state, is_state=True),
    Column("LAST REPORT", lambda a, _: f"{a.heard_ago_s} s ago", NUMBER),
    Column("GPUS", lambda a, _: str(a.gpus), NUMBER),
    Column("VERSION", lambda a, _: a.version),
    Column("NOTES", lambda a, _: "; ".join(a.notes), is_prose=True),
)


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def agents(output: str) -> None:
    """List the node agents of this Kaiwo, and when each last reported.

    A lost agent no longer reports; its node keeps the devices of the last report.

    \b
    Examples:
      kaiwo agents
      kaiwo agents -o json
    """
    server = this_server()
    body = server.get("/agents")
    if output != "table":
        printing.print_raw(body, output)
        return
    page = server.decode(body, Page[AgentView])
    if not page.items:
        printing.hint("no agent has reported yet; start one on a node: kaiwo agent --server URL --token-file FILE")
        return
    rows = [row(COLUMNS, agent, 0) for agent in page.items]
    width = printing.terminal_width()
    click.echo("\n".join(lay_out(COLUMNS, rows, width, paint=printing.paint_state)))
