"""`kaiwo login` and `kaiwo logout`: print a link that logs one browser in, and end all logins."""

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.people import IdentityView, LoginView
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, connect_server, server_location


@click.command(cls=Verb)
@click.option("--token", "is_saved", is_flag=True, help="Ask for your token first, and save it for this server.")
def login(is_saved: bool) -> None:
    """Print a link that logs one browser in. The link works once, for 5 minutes.

    The browser is logged in as you: as the owner of Kaiwo, or as the person whose token you use. A login ends with
    `kaiwo logout`, when your token ends, and when Kaiwo is restarted.

    With --token, paste the token that an admin made for you with `kaiwo tokens create`; it may also come from a pipe.
    It is saved in KAIWO_HOME, and this command line uses it for this server from then on. KAIWO_TOKEN does the same
    for one shell.

    \b
    Examples:
      kaiwo login
      kaiwo login --token --server https://gpu.lab:7600
    """
    if is_saved:
        _save_token()
    server = connect_server()
    click.echo(server.url + server.decode(server.send("POST", "/logins"), LoginView).path)


def _save_token() -> None:
    """Not an argument: other users of the machine see those."""
    from kaiwo.cli.client.find_server import save_token

    server = connect_server()
    server.token = click.prompt("Token", hide_input=True, err=True).strip()
    server.token_source = "what you entered"
    person = server.decode(server.get("/whoami"), IdentityView)
    save_token(server_location(), server.url, server.token)
    of = f" of {', '.join(person.queues)}" if person.role == "user" else ""
    printing.hint(f"you are {person.name}, with the role {person.role}{of}")


@click.command(cls=Verb)
def logout() -> None:
    """Log all of your browsers out, and make unused login links worthless.

    \b
    Example:
      kaiwo logout
    """
    server = connect_server()
    click.echo("\n".join(server.decode(server.send("DELETE", "/logins"), Outcome).done))
