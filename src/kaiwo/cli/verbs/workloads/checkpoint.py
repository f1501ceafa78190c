"""`kaiwo checkpoint`: record that a running workload has saved its progress."""

import os

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.cli.client.api_client import workload_path
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError


@click.command(cls=Verb)
@click.argument("name", required=False, default="", metavar="[WORKLOAD]", shell_complete=complete_workload)
@click.option("--at", metavar="WHEN", help="Time it was saved: 2026-01-31T18:00:00Z, or seconds since 1970.")
def checkpoint(name: str, at: str | None) -> None:
    """Record that a running workload has saved its progress. Inside a job the name can be left out.

    When Kaiwo must preempt workloads, it prefers those that lose the least work since their last checkpoint.

    \b
    Examples:
      kaiwo checkpoint train
      kaiwo checkpoint train --at 2026-01-31T18:00:00Z
      kaiwo submit train -- sh -c './first-half && kaiwo checkpoint && ./second-half'
    """
    name = name or os.environ.get("KAIWO_WORKLOAD", "")
    if not name:
        raise ConfigError("name the workload that saved its progress; the name can be left out only inside a job")
    if at == "":
        raise ConfigError("--at is empty; give it a value or leave it out")
    server = connect_server()
    body = server.post(f"{workload_path(full_name(name))}/checkpoint", {} if at is None else {"at": at})
    printing.print_outcome(body, server.decode(body, Outcome))
