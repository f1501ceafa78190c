"""`kaiwo nodes`: list nodes; cordon, uncordon or drain them."""

from typing import Any

import click

from kaiwo.api.views import Outcome
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.object_kinds import NODES
from kaiwo.cli.lists.show_list import list_options, show_list
from kaiwo.cli.name_completion import complete_node
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import VerbGroup, connect_server, run_for_each


@click.group(cls=VerbGroup, describe="kaiwo describe node", invoke_without_command=True)
@list_options(NODES)
@click.pass_context
def nodes(ctx: click.Context, **options: Any) -> None:
    """List nodes; cordon, uncordon or drain them.

    \b
    Examples:
      kaiwo nodes
      kaiwo nodes -l pool=a -o wide
      kaiwo nodes drain node-3 --reason "new fan"
    """
    if ctx.invoked_subcommand is None:
        show_list(NODES, **options)


def _node_verb(verb: str, summary: str, options: str = "") -> None:
    @nodes.command(verb, help=f"{summary}\n\n\b\nExample:\n  kaiwo nodes {verb} node-3{options}")
    @click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_node)
    @click.option("--reason", metavar="TEXT", default="", help="Reason, shown with the node.")
    def act(names: tuple[str, ...], reason: str) -> int:
        server = connect_server()

        def change(name: str) -> None:
            body = server.post(f"{object_path('nodes', name)}/{verb}", {"reason": reason} if reason else {})
            printing.print_outcome(body, server.decode(body, Outcome))

        return run_for_each(names, change)


_node_verb("cordon", "Start no new pods on these nodes; running pods continue.")
_node_verb("uncordon", "Let pods start on these nodes again.")
_node_verb(
    "drain", "Cordon these nodes and stop their workloads, which then wait for other nodes.", ' --reason "new fan"'
)
