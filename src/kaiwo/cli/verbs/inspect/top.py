"""`kaiwo top`: the live cluster on one screen, with the keys of k9s."""

import contextlib

import click

from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import DEFAULT_TIMEOUT_S, Verb, connect_server, server_location
from kaiwo.model.errors import ConfigError


@click.command(cls=Verb)
@click.argument("kind", default="workloads", metavar="[KIND]")
def top(kind: str) -> None:
    """Show the live cluster in the terminal: workloads, nodes, queues, gpus or reservations.

    Keys: arrows or j and k move, 1 to 5 or :nodes change the view, / filters, w asks why, d describes, l shows logs,
    Ctrl-K cancels after a question, ? lists all keys, q leaves.

    \b
    Examples:
      kaiwo top
      kaiwo top nodes
    """
    from kaiwo.cli.client.find_server import connect
    from kaiwo.cli.lists.object_kinds import require_kind

    chosen = require_kind(kind)
    if not printing.is_terminal():
        raise ConfigError(f"kaiwo top needs a terminal; in a pipe use: kaiwo get {chosen.plural} -w")
    connect_server().get("/status")  # a server that is not there is told before the screen is taken
    from kaiwo.cli.lists.top_screen import VIEWS, TopScreen, run_top, run_verb  # its library takes 0.2 s

    if chosen not in VIEWS:
        raise ConfigError(f"kaiwo top has no view of {chosen.plural}; use: kaiwo get {chosen.plural} -w")
    location = server_location()
    given = [
        *(["--server", location.server] if location.server else []),
        *(["--home", location.home] if location.home else []),
    ]
    screen = TopScreen(lambda: connect(location, DEFAULT_TIMEOUT_S), lambda words: run_verb(given, words), chosen)
    with contextlib.suppress(KeyboardInterrupt):
        run_top(screen, has_colour=printing.has_colour())
