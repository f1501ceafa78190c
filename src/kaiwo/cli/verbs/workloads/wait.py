"""`kaiwo wait`: wait until workloads run, succeed or end."""

from collections.abc import Sequence

import click

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.client.wait_for_workloads import HAS_RUN, wait_for
from kaiwo.cli.name_completion import complete_workload, resolve
from kaiwo.cli.output.formatting import parse_span, short_name
from kaiwo.cli.verb_base import Verb, this_place, this_server
from kaiwo.model.workload_record import State

GOALS = {
    "running": lambda state: state in HAS_RUN,
    "succeeded": lambda state: state is State.SUCCEEDED,
    "over": lambda state: state.is_over,
}


@click.command(cls=Verb)
@click.argument("names", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=complete_workload)
@click.option(
    "--for",
    "goal",
    type=click.Choice(list(GOALS)),
    default="succeeded",
    metavar="GOAL",
    help="State to wait for: running, succeeded (default) or over.",
)
@click.option("--timeout", metavar="LENGTH", help="Give up after this long, such as 10m.")
def wait(names: tuple[str, ...], goal: str, timeout: str | None) -> int:
    """Wait until workloads run, succeed or end. The base name of an array means all its tasks.

    Exits with 1 if one of them ends in another state, or at the timeout.

    \b
    Examples:
      kaiwo wait train eval --timeout 2h
      kaiwo wait train --for running && kaiwo logs -f train
    """
    server = this_server()
    full = list(dict.fromkeys(target for name in names for target in resolve(server, name)))
    return wait_until(full, goal, parse_span(timeout) if timeout else None)


def wait_until(names: Sequence[str], goal: str, timeout_s: float | None, is_told: bool = True) -> int:
    """Wait, print how each workload ended, and return the exit code."""
    place = this_place()
    is_reached = GOALS[goal]

    def tell(detail: WorkloadDetail) -> None:
        if is_told:
            click.echo(ending(detail))

    details = wait_for(lambda: connect(place), names, is_reached, timeout_s, tell)
    return 0 if all(is_reached(detail.summary.state) for detail in details) else 1


def ending(detail: WorkloadDetail) -> str:
    """`train failed: exit code 3`."""
    state = detail.summary.state
    name = short_name(detail.summary.name)
    text = f"{name} was cancelled" if state is State.CANCELLED else f"{name} {'' if state.is_over else 'is '}{state}"
    why = detail.message or (f"exit code {detail.exit_code}" if detail.exit_code else "")
    return f"{text}: {why}" if why and state in (State.FAILED, State.CANCELLED) else text
