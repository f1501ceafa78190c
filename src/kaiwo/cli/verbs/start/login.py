"""`kaiwo login`: let one more browser change things."""

import click

from kaiwo.api.views import LoginView
from kaiwo.cli.verb_base import Verb, this_server


@click.command(cls=Verb)
def login() -> None:
    """Print an address that logs one browser in. It works once.

    Without it the page can be looked at, but not used to change things.

    \b
    Example:
      kaiwo login
    """
    server = this_server()
    click.echo(server.url + server.decode(server.send("POST", "/logins"), LoginView).path)
