"""`kaiwo nodes`: list nodes; cordon, uncordon or drain them."""

from typing import Any

import click
import msgspec

from kaiwo.api.views import Outcome
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.list_options import listing_options, make_wish
from kaiwo.cli.lists.object_kinds import NODES
from kaiwo.cli.lists.show_list import show
from kaiwo.cli.name_completion import complete_node
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import VerbGroup, this_server
from kaiwo.model.errors import KaiwoError


class Nodes(VerbGroup):
    """Says what to type when a node's name is given where a subcommand is expected."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(
                f"'{args[0]}' is not one of {', '.join(self.commands)}; for one node: kaiwo describe node {args[0]}",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Nodes, invoke_without_command=True)
@listing_options(NODES)
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
        show(this_server(), NODES, make_wish(NODES, **options))


def _node_verb(verb: str, help_text: str) -> None:
    @nodes.command(verb, help=help_text)
    @click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_node)
    @click.option("--reason", metavar="TEXT", default="", help="Reason, shown with the node.")
    def act(names: tuple[str, ...], reason: str) -> int:
        server = this_server()
        code = 0
        for name in names:
            try:
                form = msgspec.json.encode({"reason": reason} if reason else {})
                body = server.send("POST", f"{object_path('nodes', name)}/{verb}", None, form, "application/json")
                printing.print_outcome(body, server.decode(body, Outcome))
            except KaiwoError as error:
                if len(names) == 1:
                    raise
                from kaiwo.cli.main import exit_code

                printing.hint(f"kaiwo: {error}")
                code = code or exit_code(error)
        return code


_node_verb(
    "cordon", "Start no new pods on these nodes; running pods continue.\n\n\b\nExample:\n  kaiwo nodes cordon node-3"
)
_node_verb("uncordon", "Let pods start on these nodes again.\n\n\b\nExample:\n  kaiwo nodes uncordon node-3")
_node_verb(
    "drain",
    "Cordon these nodes and stop their workloads, which then wait for other nodes.\n\n"
    '\b\nExample:\n  kaiwo nodes drain node-3 --reason "new fan"',
)
