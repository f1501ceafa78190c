"""`kaiwo gpus`: list GPUs and the workloads on them."""

from typing import Any

import click

from kaiwo.cli.lists.object_kinds import GPUS
from kaiwo.cli.lists.show_list import list_options, show_list
from kaiwo.cli.name_completion import complete_node
from kaiwo.cli.verb_base import Verb


@click.command(cls=Verb)
@click.option("--node", metavar="NODE", default="", shell_complete=complete_node, help="Only GPUs of this node.")
@click.option("--model", metavar="MODEL", default="", help="Only GPUs of this model.")
@click.option("--free", is_flag=True, help="Only GPUs without workloads.")
@list_options(GPUS)
def gpus(node: str, model: str, free: bool, **options: Any) -> None:
    """List GPUs, the free capacity of each and the workloads on it.

    \b
    Examples:
      kaiwo gpus --free --model MI300X
      kaiwo gpus --node node-1 -w
    """
    query = {"node": node, "model": model, "free": "true" if free else ""}
    show_list(GPUS, {key: value for key, value in query.items() if value}, **options)
