"""`kaiwo wait`: poll the API until workloads run, succeed or end, also while the server restarts."""

import time
from collections.abc import Callable, Mapping, Sequence

import click

from kaiwo.api.views import WorkloadDetail
from kaiwo.cli.client.api_client import ApiClient, LostServerError, NoServerError, workload_path
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.name_completion import complete_workload, resolve_workloads
from kaiwo.cli.output.formatting import parse_duration, short_name
from kaiwo.cli.verb_base import Verb, connect_server, server_location
from kaiwo.model.errors import ClusterError
from kaiwo.model.workload_record import WorkloadState

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
RECONNECT_S = 30.0

Connect = Callable[[], ApiClient]
_HAS_STARTED = (WorkloadState.RUNNING, WorkloadState.STOPPING)
MAX_NAMED = 5
HAS_RUN = (WorkloadState.RUNNING, WorkloadState.STOPPING, WorkloadState.SUCCEEDED)
GOALS = {
    "running": lambda state: state in HAS_RUN,
    "succeeded": lambda state: state is WorkloadState.SUCCEEDED,
    "over": lambda state: state.is_over,
}


@click.command(cls=Verb)
@click.argument("names", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=complete_workload)
@click.option("--for", "goal", type=click.Choice(list(GOALS)), default="succeeded", metavar="GOAL",
              help="State to wait for: running, succeeded (default) or over.")  # fmt: skip
@click.option("--timeout", metavar="LENGTH", help="Give up after this long, such as 10m.")
def wait(names: tuple[str, ...], goal: str, timeout: str | None) -> int:
    """Wait until workloads run, succeed or end. The base name of an array means all its tasks.

    Exits with 1 if one of them ends in another state, or at the timeout.

    \b
    Examples:
      kaiwo wait train eval --timeout 2h
      kaiwo wait train --for running && kaiwo logs -f train
    """
    server = connect_server()
    full = list(dict.fromkeys(target for name in names for target in resolve_workloads(server, name)))
    return wait_until(full, goal, parse_duration(timeout) if timeout else None)


def wait_until(names: Sequence[str], goal: str, timeout_s: float | None, is_printed: bool = True) -> int:
    """Wait until every workload has reached the goal or has ended; print each, and return the exit code."""
    location, is_reached = server_location(), GOALS[goal]
    poller, pause = WorkloadPoller(lambda: connect(location)), FIRST_PAUSE_S
    unfinished: dict[str, WorkloadState | None] = dict.fromkeys(names)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    code = 0
    while True:
        for name in list(unfinished):
            detail = poller.detail(name)
            if detail is None:
                break
            state = unfinished[name] = detail.summary.state
            if is_reached(state) or state.is_over:
                del unfinished[name]
                code = code if is_reached(state) else 1
                if is_printed:
                    click.echo(describe_ending(detail))
        if not unfinished:
            return code
        if deadline is not None and time.monotonic() >= deadline:
            raise ClusterError(f"timed out after {timeout_s:g} s: {_describe_unfinished(unfinished)}")
        time.sleep(min(pause, max(0.0, deadline - time.monotonic()) + 0.01) if deadline is not None else pause)
        pause = min(LONGEST_PAUSE_S, pause * 1.3)


def describe_ending(detail: WorkloadDetail) -> str:
    """`train failed: exit code 3`."""
    state = detail.summary.state
    name = short_name(detail.summary.name)
    verb = "was " if state is WorkloadState.CANCELLED else "" if state.is_over else "is "
    why = detail.message or (f"exit code {detail.exit_code}" if detail.exit_code else "")
    is_explained = why and state in (WorkloadState.FAILED, WorkloadState.CANCELLED)
    return f"{name} {verb}{state}{f': {why}' if is_explained else ''}"


class WorkloadPoller:
    """Polls a server that may be away for a while."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._missing_since = 0.0

    def detail(self, name: str) -> WorkloadDetail | None:
        """The current state of a workload; None while the server is away."""
        try:
            server = self._connect()
            detail = server.decode(server.get(workload_path(name)), WorkloadDetail)
        except (NoServerError, LostServerError):
            self._missing_since = self._missing_since or time.monotonic()
            if time.monotonic() - self._missing_since > RECONNECT_S:
                raise
            return None
        self._missing_since = 0.0
        return detail


def _describe_unfinished(late: Mapping[str, WorkloadState | None]) -> str:
    """`train is still running, eval is still waiting; see: kaiwo logs -f train`."""
    special = {None: "is unknown", WorkloadState.HELD: "is held"}
    phrases = [f"{short_name(name)} {special.get(state, f'is still {state}')}" for name, state in late.items()]
    more = f" and {len(phrases) - MAX_NAMED} more" if len(phrases) > MAX_NAMED else ""
    first, state = next(iter(late.items()))
    if state is None:
        way_out = "check with: kaiwo status"
    else:
        way_out = f"see: kaiwo {'logs -f' if state in _HAS_STARTED else 'why'} {short_name(first)}"
    return f"{', '.join(phrases[:MAX_NAMED])}{more}; {way_out}"
