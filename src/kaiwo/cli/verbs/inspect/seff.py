"""`kaiwo seff`: how much of what it held a workload used, as Slurm's command of that name says."""

import click

from kaiwo.api.views.past import HistoryView
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.cli.verbs.inspect.history import print_efficiency, read_history


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option("--submission", metavar="N", type=click.IntRange(1), help="Submission of a name that was used again.")
@printing.output_option("table", "json", "yaml")
def seff(name: str, submission: int | None, output: str) -> None:
    """Show how much of its GPUs and memory a workload used, while it runs or after its end.

    Asked is what it held, from start to end of each attempt. Used is that times how busy its GPUs were, as the agents
    of its nodes measured; wasted is the rest. Where no agent measures, or several tenants share a GPU, both are
    unknown.

    \b
    Examples:
      kaiwo seff train
      kaiwo seff train --submission 1 -o json
    """
    server = connect_server()
    view = server.decode(read_history(server, name, submission), HistoryView)
    if output != "table":
        import msgspec

        short = {key: getattr(view, key) for key in ("workload", "submission", "state", "queue", "user")}
        printing.print_data({**short, "efficiency": msgspec.to_builtins(view.efficiency)}, output)
        return
    printing.print_facts(("workload", view.workload), ("state", view.state or "ended, how is unknown"))
    print_efficiency(view.efficiency)
    if view.efficiency.used_gpu_milli_s is None and view.efficiency.held_gpu_milli_s:
        printing.hint(next((each for each in view.unknown if "used of its GPUs" in each), "what it used is not known"))
    printing.hint(f"what happened to it: kaiwo history {short_name(view.workload)}")
