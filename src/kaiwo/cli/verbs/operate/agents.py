"""`kaiwo agents`: list node agents and when each last reported."""

import click

from kaiwo.api.views.answers import Page
from kaiwo.api.views.nodes import AgentView
from kaiwo.cli.lists.columns import NUMBER, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import Verb, connect_server

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
    server = connect_server()
    body = server.get("/agents")
    if output != "table":
        printing.print_body(body, output)
        return
    page = server.decode(body, Page[AgentView])
    if not page.items:
        printing.hint("no agent has reported yet; start one on a node: kaiwo agent --server URL --token-file FILE")
        return
    printing.print_table(COLUMNS, [table_row(COLUMNS, agent, 0) for agent in page.items])
