"""`kaiwo partitions`: show planned and running changes of GPU partition modes, and set the policy."""

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.partitions import PartitionStepView, PartitionsView
from kaiwo.cli.lists.columns import NUMBER, table_row
from kaiwo.cli.output import printing
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.server_options import PARTITIONS
from kaiwo.cli.verb_base import Verb, connect_server, reason_option, reason_query
from kaiwo.model.amounts import count, short_duration

STEPS = (
    Column("NODE", lambda s, _: s.node),
    Column("GPU", lambda s, _: s.gpu),
    Column("FROM", lambda s, _: s.before),
    Column("TO", lambda s, _: s.after),
    Column("STATE", lambda s, _: s.state, is_state=True),
    Column("WAITS", lambda s, _: short_duration(s.waits_s) if s.waits_s else "", NUMBER),
    Column("TAKES", lambda s, _: short_duration(s.takes_s) if s.takes_s else "", NUMBER),
    Column("IDLE", lambda s, _: f"{s.idle_gpu_s / 60:.0f} GPU-min" if s.idle_gpu_s else "", NUMBER),
    Column("REASON", lambda s, _: s.reason, is_prose=True),
)
NODES = (
    Column("NODE", lambda node, _: node.node),
    Column("PROFILE", lambda node, _: node.profile),
    Column("STATE", lambda node, _: node.state, is_state=True),
    Column("REASON", lambda node, _: node.reason, is_prose=True),
)


@click.command(cls=Verb)
@click.option("--policy", type=click.Choice(PARTITIONS), help="Set the policy: off, plan only, or change modes.")
@reason_option()
@printing.output_option("table", "json", "yaml")
def partitions(policy: str | None, reason: str, output: str) -> None:
    """Show which GPUs should change their partition mode for waiting workloads, and which changes are running.

    A GPU never changes under a running pod: it takes no new pods and changes when its pods have ended. To set the mode
    of some nodes whatever is waiting, apply a PartitioningPlan: kaiwo apply -f plan.yaml.

    \b
    Examples:
      kaiwo partitions
      kaiwo partitions --policy on
    """
    server = connect_server()
    if policy:
        body = server.post("/partitions/policy", {"policy": policy}, reason_query(reason))
        printing.print_outcome(body, server.decode(body, Outcome), output)
        return
    body = server.get("/partitions")
    if output != "table":
        printing.print_body(body, output)
        return
    _print(server.decode(body, PartitionsView))


def _print(view: PartitionsView) -> None:
    click.echo(printing.bold(printing.wrap(_summary(view))))
    _print_steps("", view.steps)
    if view.total > len(view.steps):
        click.echo(f"and {view.total - len(view.steps)} more")
    for need in view.unserved:
        click.echo(printing.wrap(f"No allowed change helps {need}."))
    for conflict in view.conflicts:
        click.echo(printing.wrap(f"Conflict: {conflict}"))
    for plan in view.plans:
        click.echo(f"\nPartitioningPlan {plan.name}: {plan.state}, {count(len(plan.nodes), 'node')}")
        if plan.nodes:
            printing.print_table(NODES, [table_row(NODES, node, 0) for node in plan.nodes])
    _print_steps("\nEarlier changes:", view.history[:10])
    if view.policy == "dry-run" and view.steps:
        printing.hint("next: kaiwo partitions --policy on")


def _summary(view: PartitionsView) -> str:
    if view.policy == "off":
        return "The partition policy is off: nothing is planned and nothing changes."
    what = f"{count(view.total, 'GPU')} {'would' if view.policy == 'dry-run' else 'will'} change" if view.total else ""
    cost = f", which leaves {view.idle_gpu_s / 60:.0f} GPU-minutes idle" if view.idle_gpu_s else ""
    plan = f"{what or 'no GPU needs another mode'}{cost}"
    return f"The partition policy is {view.policy}: {plan}. Changes are made by {view.carried_out_by}."


def _print_steps(title: str, steps: list[PartitionStepView]) -> None:
    if steps:
        if title:
            click.echo(title)
        printing.print_table(STEPS, [table_row(STEPS, step, 0) for step in steps])
