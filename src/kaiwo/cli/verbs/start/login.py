"""`kaiwo login`: print a link that logs one browser in."""

import click

from kaiwo.api.views import LoginView
from kaiwo.cli.verb_base import Verb, connect_server


@click.command(cls=Verb)
def login() -> None:
    """Print a link that logs one browser in. The link works once.

    A browser that is not logged in can show everything but change nothing.

    \b
    Example:
      kaiwo login
    """
    server = connect_server()
    click.echo(server.url + server.decode(server.send("POST", "/logins"), LoginView).path)
