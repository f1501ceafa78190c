"""`kaiwo demo clear`: remove the sample workloads."""

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import VerbGroup, connect_server


@click.group(cls=VerbGroup)
def demo() -> None:
    """Remove the sample workloads that `kaiwo up --demo` submitted.

    \b
    Example:
      kaiwo demo clear
    """


@demo.command()
def clear() -> None:
    """Cancel and delete all workloads labelled kaiwo.ai/demo=true, and delete the demo's queues.

    Queues that other workloads use, or that were changed since, stay.

    \b
    Example:
      kaiwo demo clear
    """
    server = connect_server()
    body = server.send("DELETE", "/demo")
    printing.print_outcome(body, server.decode(body, Outcome))
