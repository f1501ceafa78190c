"""`kaiwo gpus`: list GPUs and the workloads on them, or what is free and of no use."""

from typing import Any

import click

from kaiwo.api.views.fragments import FragmentsView
from kaiwo.cli.lists.columns import NUMBER, table_row
from kaiwo.cli.lists.object_kinds import GPUS
from kaiwo.cli.lists.show_list import list_options, show_list
from kaiwo.cli.name_completion import complete_node
from kaiwo.cli.output import printing
from kaiwo.cli.output.kind_words import kind_words
from kaiwo.cli.output.table_layout import Column
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import thousandths
from kaiwo.model.errors import ConfigError

REASONS = {
    "no-cpu": "its CPU is used up",
    "too-small": "what is left of its GPUs is smaller than any request",
    "model": "no request accepts this model",
    "node-closed": "it takes no work",
}
NODES = (
    Column("NODE", lambda each, _: each.node),
    Column("MODEL", lambda each, _: each.model),
    Column("FREE", lambda each, _: thousandths(each.free_gpu_milli), NUMBER),
    Column("WHOLE", lambda each, _: str(each.whole_gpus), NUMBER),
    Column("CPU FREE", lambda each, _: thousandths(each.free_cpu_milli), NUMBER),
    Column("STRANDED", lambda each, _: thousandths(each.stranded_milli), NUMBER),
    Column("RATIO", lambda each, _: f"{each.ratio * 100:.0f} %", NUMBER),
    Column("WHY", lambda each, _: REASONS.get(each.reason, each.reason)),
)
DOMAINS = (
    Column("DOMAIN", lambda each, _: each.domain),
    Column("LEVEL", lambda each, _: each.level),
    Column("FREE", lambda each, _: thousandths(each.free_gpu_milli), NUMBER),
    Column("STRANDED", lambda each, _: thousandths(each.stranded_milli), NUMBER),
    Column("RATIO", lambda each, _: f"{each.ratio * 100:.0f} %", NUMBER),
)
KINDS = (
    Column("REQUEST", lambda each, _: kind_words(each)),
    Column("OF THE MIX", lambda each, _: f"{each.part * 100:.0f} %", NUMBER),
    Column("MORE PODS FIT", lambda each, _: str(each.pods), NUMBER),
)


@click.command(cls=Verb)
@click.option("--node", metavar="NODE", default="", shell_complete=complete_node, help="Only GPUs of this node.")
@click.option("--model", metavar="MODEL", default="", help="Only GPUs of this model.")
@click.option("--free", is_flag=True, help="Only GPUs without workloads.")
@click.option("--fragments", is_flag=True, help="Show what is free and cannot be used, by node and domain, and why.")
@list_options(GPUS)
def gpus(node: str, model: str, free: bool, fragments: bool, **options: Any) -> None:
    """List GPUs, the free capacity of each and the workloads on it.

    With --fragments: STRANDED is the free amount that no request of the mix seen so far could use. RATIO is the mean
    part of the free amount that a request of that mix cannot use.

    \b
    Examples:
      kaiwo gpus --free --model MI300X
      kaiwo gpus --node node-1 -w
      kaiwo gpus --fragments
    """
    if fragments:
        if node or model or free:
            raise ConfigError("--fragments looks at the whole cluster; leave out --node, --model and --free")
        show_fragments(options["output"], options["limit"])
        return
    query = {"node": node, "model": model, "free": "true" if free else ""}
    show_list(GPUS, {key: value for key, value in query.items() if value}, **options)


def show_fragments(output: str, limit: int) -> None:
    """The nodes with most stranded come first."""
    server = connect_server()
    body = server.get("/gpus/fragments")
    if output in ("json", "yaml"):
        printing.print_body(body, output)
        return
    view = server.decode(body, FragmentsView)
    free, stranded = thousandths(view.free_gpu_milli), thousandths(view.stranded_milli)
    click.echo(f"{free} GPUs are free; {stranded} of them are stranded. Fragmentation: {view.ratio * 100:.0f} %.")
    for reason, milli in view.stranded_by.items():
        click.echo(f"  {thousandths(milli)} on nodes where {REASONS.get(reason, reason)}")
    if view.nodes:
        click.echo()
        printing.print_table(NODES, [table_row(NODES, each, 0) for each in view.nodes[: limit or None]])
    if view.domains:
        click.echo()
        printing.print_table(DOMAINS, [table_row(DOMAINS, each, 0) for each in view.domains])
    if view.kinds:
        click.echo()
        printing.print_table(KINDS, [table_row(KINDS, each, 0) for each in view.kinds])
