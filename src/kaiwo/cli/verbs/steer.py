"""`kaiwo cancel`, `hold`, `release`, `requeue`: one way to name many workloads, four things to do to them."""

from collections.abc import Callable
from typing import Any

import click

from kaiwo.cli import printing
from kaiwo.cli.kinds import WORKLOADS
from kaiwo.cli.listing import fetch
from kaiwo.cli.names import complete_queue, complete_workload
from kaiwo.cli.steering import Steering
from kaiwo.cli.verb import Verb, this_server
from kaiwo.cli.wish import make_wish
from kaiwo.cli.words import LIVING
from kaiwo.model.errors import ConfigError

TASK_STATES = {"requeue": ("running", "failed", "cancelled")}  # meant by an array's name; with -l or -q others may be


def _steering(default_states: tuple[str, ...]) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in reversed(
            (
                click.argument("names", nargs=-1, metavar="[WORKLOAD]...", shell_complete=complete_workload),
                click.option(
                    "-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="All with this label."
                ),
                click.option(
                    "-q",
                    "--queue",
                    metavar="QUEUE",
                    default="",
                    shell_complete=complete_queue,
                    help="All of this queue and those below it.",
                ),
                click.option(
                    "--state",
                    "states",
                    multiple=True,
                    metavar="STATE",
                    help=f"With -l or -q: only in this state ({', '.join(default_states)} if not said).",
                ),
            )
        ):
            command = option(command)
        return command

    return add


@click.command(cls=Verb)
@_steering(LIVING)
def cancel(**chosen: Any) -> int:
    """Stop workloads for good. An array is cancelled by its base name or by one of its members.

    \b
    Examples:
      kaiwo cancel train
      kaiwo cancel sweep sweep2-3
      kaiwo cancel 'sweep-*'
      kaiwo cancel -l team=vision --state waiting
    """
    return _each("cancel", LIVING, **chosen)


@click.command(cls=Verb)
@_steering(("waiting",))
def hold(**chosen: Any) -> int:
    """Keep waiting workloads from starting, until `kaiwo release`.

    \b
    Examples:
      kaiwo hold train
      kaiwo hold -q lab
    """
    return _each("hold", ("waiting",), **chosen)


@click.command(cls=Verb)
@_steering(("held",))
def release(**chosen: Any) -> int:
    """Let held workloads start.

    \b
    Examples:
      kaiwo release train
      kaiwo release -l team=vision
    """
    return _each("release", ("held",), **chosen)


@click.command(cls=Verb)
@_steering(("running", "failed"))
def requeue(**chosen: Any) -> int:
    """Stop workloads if they run, and let them wait again; ended ones start over.

    An array's name means its tasks that run, failed or were cancelled.

    \b
    Examples:
      kaiwo requeue train
      kaiwo requeue 'sweep-*'
      kaiwo requeue -l team=vision --state failed
    """
    return _each("requeue", ("running", "failed"), **chosen)


def _each(
    verb: str,
    default_states: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    queue: str,
    states: tuple[str, ...],
) -> int:
    """Do it to every one of them, whatever becomes of the others; the first failure gives the exit code."""
    if bool(names) == bool(labels or queue):
        raise ConfigError("name workloads, or choose them with -l or -q")
    if states and names:
        raise ConfigError("--state goes with -l or -q, not with names")
    server = this_server()
    if not names:
        wish = make_wish(WORKLOADS, labels=labels, queue=queue, states=states or default_states, limit=0)
        names = tuple(item["name"] for item in fetch(server, WORKLOADS, wish)[0])
        if not names:
            printing.hint("no workloads match; nothing was done")
    return Steering(server, verb, TASK_STATES.get(verb, default_states)).do(names)
