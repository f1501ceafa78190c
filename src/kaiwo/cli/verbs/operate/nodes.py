"""`kaiwo nodes`: list nodes; cordon, uncordon, drain, fail or restore them."""

from collections.abc import Iterable
from typing import Any

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.nodes import NodeView
from kaiwo.cli.client.api_client import ApiClient, object_path
from kaiwo.cli.lists.object_kinds import NODES
from kaiwo.cli.lists.show_list import list_options, show_list
from kaiwo.cli.name_completion import complete_node
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.stop_running import confirm_stop, yes_option
from kaiwo.cli.verb_base import VerbGroup, connect_server, run_for_each
from kaiwo.clusters.queue_access import first_names
from kaiwo.model.amounts import count


@click.group(cls=VerbGroup, describe="kaiwo describe node", invoke_without_command=True)
@list_options(NODES)
@click.pass_context
def nodes(ctx: click.Context, **options: Any) -> None:
    """List nodes; cordon, uncordon, drain, fail or restore them.

    \b
    Examples:
      kaiwo nodes
      kaiwo nodes -l pool=a -o wide
      kaiwo nodes drain node-3 --reason "new fan"
    """
    if ctx.invoked_subcommand is None:
        show_list(NODES, **options)


def _node_verb(verb: str, summary: str, options: str = "", stops_work: bool = False) -> None:
    @nodes.command(verb, help=f"{summary}\n\n\b\nExample:\n  kaiwo nodes {verb} node-3{options}")
    @click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_node)
    @click.option("--reason", metavar="TEXT", default="", help="Why: shown with the node, and in the audit.")
    def act(names: tuple[str, ...], reason: str, yes: bool = True) -> int:
        server = connect_server()
        if not yes:
            confirm_stop(lambda: _running_on(server, names))

        def change(name: str) -> None:
            body = server.post(f"{object_path('nodes', name)}/{verb}", {"reason": reason} if reason else {})
            printing.print_outcome(body, server.decode(body, Outcome))

        return run_for_each(names, change)

    if stops_work:
        yes_option(act)


def _running_on(server: ApiClient, names: Iterable[str]) -> str:
    """`this stops 9 pods of train, sweep-1 and 2 more on node node-3`; empty: nothing runs there."""
    lines = []
    for name in dict.fromkeys(names):
        view = server.decode(server.get(object_path("nodes", name)), NodeView)
        if view.pods.used:
            found = dict.fromkeys(short_name(tenant.workload) for gpu in view.gpus for tenant in gpu.tenants)
            whose = f" of {first_names(found)}" if found else ""
            lines.append(f"this stops {count(view.pods.used, 'pod')}{whose} on node {name}")
    return "\n".join(lines)


_node_verb("cordon", "Start no new pods on these nodes; running pods continue.")
_node_verb("uncordon", "Let pods start on these nodes again.")
_node_verb(
    "drain",
    "Cordon these nodes and stop their workloads, which then wait for other nodes.",
    ' --reason "new fan"',
    stops_work=True,
)


@nodes.command("fail")
@click.argument("names", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_node)
@click.option("--gpu", metavar="GPU", default="", help="Only this GPU of the node failed.")
@click.option(
    "--unreachable", is_flag=True, help="The node does not answer, but its pods may still run: nothing replaces them."
)
@click.option("--reason", metavar="TEXT", default="", help="Why: shown with the node, and in the audit.")
@yes_option
def fail(names: tuple[str, ...], gpu: str, unreachable: bool, reason: str, yes: bool) -> int:
    """Treat nodes, or one GPU of a node, as failed. Their work recovers on other nodes; kaiwo recovery shows how.

    Use it to practise on virtual nodes, or for a machine that you know to be off. On Kubernetes, nodes fail by
    themselves, and the taint node.kubernetes.io/out-of-service says that one is off.

    \b
    Examples:
      kaiwo nodes fail node-3
      kaiwo nodes fail node-3 --gpu gpu-1 --reason "uncorrectable memory error"
      kaiwo nodes fail node-3 --unreachable
    """
    server = connect_server()
    if not yes and not unreachable and not gpu:
        confirm_stop(lambda: _running_on(server, names))
    fields: dict[str, Any] = {"reason": reason, "gpu": gpu, "unreachable": unreachable}

    def change(name: str) -> None:
        given = {key: value for key, value in fields.items() if value}
        body = server.post(f"{object_path('nodes', name)}/fail", given)
        printing.print_outcome(body, server.decode(body, Outcome))

    return run_for_each(names, change)


_node_verb("restore", "Mark nodes and all their GPUs as working. One that failed often takes work again after a while.")
