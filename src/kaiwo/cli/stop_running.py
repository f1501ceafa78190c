"""Ask before a change that stops running work. Some the server refuses until the client insists."""

import sys
from collections.abc import Callable

import click

from kaiwo.model.errors import RefusedError

INSIST = "stop_running"  # the server names this parameter in its refusal

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask, even if this stops running work.")


def confirm_stop(find_running: Callable[[], str]) -> None:
    """At a terminal, show what runs, if anything does, and ask whether to stop it. A script means what it says."""
    if sys.stdin.isatty() and (running := find_running()):
        click.echo(running, err=True)
        click.confirm("Do it?", abort=True, err=True)


def insist(send: Callable[[dict[str, str]], bytes], yes: bool) -> bytes:
    """Send a change; if the server refuses it because it stops running work, show what it says, ask, and send again."""
    if yes:
        return send({INSIST: "true"})
    try:
        return send({})
    except RefusedError as refusal:
        if refusal.field != INSIST or not sys.stdin.isatty():
            raise
        click.echo(str(refusal), err=True)
    click.confirm("Do it?", abort=True, err=True)
    return send({INSIST: "true"})
