"""`kaiwo idle`: who holds GPUs that do nothing."""

import click

from kaiwo.api.views.report import IdleListView
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import short_duration, thousandths


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def idle(output: str) -> None:
    """Show running workloads whose GPUs do nothing, the most idle GPU time first.

    A GPU counts where an agent measures it and one workload alone holds it. Nothing is stopped.

    \b
    Examples:
      kaiwo idle
      kaiwo idle -o json
    """
    server = connect_server()
    body = server.get("/idle")
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, IdleListView)
    if view.items:
        numbers = ("HELD", "IDLE")
        printing.print_table(text_columns(("NAME", "USER", "QUEUE", *numbers, "FOR"), numbers=numbers), [
            [short_name(each.workload), each.user, each.queue, thousandths(each.held_gpu_milli),
             thousandths(each.idle_gpu_milli), short_duration(view.now_s - each.since_s)]
            for each in view.items
        ])  # fmt: skip
    elif view.measured:
        printing.hint(f"no running workload has a GPU that is at most {view.most_percent} % busy")
    else:
        printing.hint("it is not known whether GPUs are idle: no agent measures the GPUs that running work holds")
