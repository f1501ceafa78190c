"""`kaiwo version`: print the version of this command and of the server."""

import click
import msgspec

from kaiwo import __version__
from kaiwo.cli.client.api_client import NoServerError
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import KaiwoError


class VersionAnswer(msgspec.Struct, frozen=True):
    version: str
    api: str


@click.command(cls=Verb)
@printing.output_option("table", "json", "yaml")
def version(output: str) -> None:
    """Print the version of this command and of the running server.

    \b
    Example:
      kaiwo version
    """
    found, url, problem = None, "", ""
    try:
        server = connect_server()
        url, found = server.url, server.decode(server.get("/version"), VersionAnswer)
    except NoServerError:
        problem = "not running"
    except KaiwoError as error:
        problem = str(error)
    if output != "table":
        known = {"version": found.version, "api": found.api, "url": url} if found else None
        printing.print_data({"client": __version__, "server": known}, output)
        return
    click.echo(f"kaiwo   {__version__}")
    click.echo(f"server  {found.version} at {url}" if found else f"server  {problem}")
