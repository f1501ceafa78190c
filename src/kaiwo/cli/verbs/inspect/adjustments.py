"""`kaiwo adjustments`: what Kaiwo changed of what work asks for, and why."""

import click

from kaiwo.api.views.advice import AdjustmentListView
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, given_fields, one_line, short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, short_duration

MODES = {
    "off": "the policy has adjustment off: nothing is changed, and nothing advised",
    "advise": "the policy only advises: kaiwo advice shows what would fit",
    "act": "the policy adjusts the next start of recurring work",
}


@click.command(cls=Verb)
@click.argument("name", required=False, metavar="[WORKLOAD]", shell_complete=complete_workload)
@printing.output_option("table", "json", "yaml")
def adjustments(name: str | None, output: str) -> None:
    """Show what Kaiwo changed of what work asks for, and why; the newest first.

    Recurring work is of the same user, queue, name and image, and of the same size. The label kaiwo.ai/adjust=off
    keeps a workload as it is.

    \b
    Examples:
      kaiwo adjustments
      kaiwo adjustments train-7
    """
    server = connect_server()
    body = server.get("/adjustments", given_fields({"workload": full_name(name) if name else ""}))
    if output != "table":
        printing.print_body(body, output)
        return
    view = server.decode(body, AdjustmentListView)
    if view.items:
        rows = [
            [short_name(each.workload), each.user, each.kind, f"{short_duration(view.now_s - each.at_s)} ago",
             one_line(f"refused: {each.refused}" if each.refused else each.reason)]
            for each in view.items
        ]  # fmt: skip
        printing.print_table(text_columns(("NAME", "USER", "WHAT", "WHEN", "WHY")), rows)
    else:
        printing.hint("nothing was adjusted" + (f" of {name}" if name else ""))
    printing.hint(f"{MODES[view.mode]}; the use of {count(view.kinds, 'kind')} of work is known")
    if view.hidden:
        printing.hint(view.hidden)
