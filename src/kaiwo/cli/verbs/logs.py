"""`kaiwo logs`: what a workload printed."""

import sys
from typing import Any

import click

from kaiwo.cli.names import complete_workload
from kaiwo.cli.server import LostServerError, Server, workload_path
from kaiwo.cli.verb import Verb, this_server
from kaiwo.cli.wire import HttpError
from kaiwo.cli.words import full_name, short_name


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until it is over.")
@click.option("--pod", metavar="POD", default="", help="Which pod; the first if not said.")
@click.option("--tail", metavar="N", type=click.IntRange(0), help="Only the last so many lines.")
def logs(name: str, follow: bool, pod: str, tail: int | None) -> None:
    """Print what a workload printed.

    \b
    Examples:
      kaiwo logs train
      kaiwo logs -f train --tail 20
      kaiwo logs big --pod main-3
    """
    query: dict[str, Any] = {}
    if pod:
        query["pod"] = pod
    if tail is not None:
        query["tail"] = tail
    if follow:
        query["follow"] = "true"
    copy_log(this_server(), full_name(name), query)


def copy_log(server: Server, name: str, query: dict[str, Any]) -> None:
    """Copy the log to stdout as it comes, byte for byte."""
    response = server.open("GET", f"{workload_path(name)}/logs", query, is_patient="follow" in query)
    sys.stdout.flush()
    try:
        with response:
            for part in response.parts():
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except (OSError, HttpError) as error:
        raise LostServerError(
            f"the kaiwo at {server.url} went away while following {name}; the work itself may go on: "
            f"kaiwo logs -f {short_name(name)}"
        ) from error
