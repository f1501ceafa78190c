"""`kaiwo demo clear`: remove the sample work."""

import click

from kaiwo.api.views import Outcome
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import VerbGroup, this_server


@click.group(cls=VerbGroup)
def demo() -> None:
    """Remove the sample work that `kaiwo up --demo` submitted.

    \b
    Example:
      kaiwo demo clear
    """


@demo.command()
def clear() -> None:
    """Cancel and forget all work with the label kaiwo.ai/demo=true, and remove the demo's queues.

    A queue that other work uses, or that somebody changed, stays.

    \b
    Example:
      kaiwo demo clear
    """
    server = this_server()
    body = server.send("DELETE", "/demo")
    printing.print_outcome(body, server.decode(body, Outcome))
