"""`kaiwo wait`: poll the API until workloads run, succeed or end, also while the server restarts."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import click

from kaiwo.api.views.answers import Page
from kaiwo.api.views.workloads import WorkloadDetail, WorkloadView
from kaiwo.cli.client.api_client import ApiClient, LostServerError, NoServerError, workload_path
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.name_completion import (
    ARRAY_LABEL,
    complete_workload,
    expand_name,
    is_array_pattern,
    is_pattern,
    resolve_workloads,
)
from kaiwo.cli.output.formatting import full_name, parse_duration, short_name
from kaiwo.cli.verb_base import Verb, connect_server, server_location
from kaiwo.model.errors import ClusterError, NotFoundError
from kaiwo.model.workload_record import WorkloadState

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
RECONNECT_S = 30.0

Connect = Callable[[], ApiClient]
_HAS_STARTED = (WorkloadState.RUNNING, WorkloadState.STOPPING)
MAX_NAMED = 5
ALL_TASKS = "-*"
T = TypeVar("T")
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
      kaiwo wait sweep 'other[0-9]'
      kaiwo wait train --for running && kaiwo logs -f train
    """
    server, timeout_s = connect_server(), parse_duration(timeout) if timeout else None
    targets = [target for name in names for target in _targets(server, name)]
    return wait_until(list(dict.fromkeys(targets)), goal, timeout_s)


def _targets(server: ApiClient, name: str) -> list[str]:
    """Workloads, or an array as a whole (`default/sweep-*`), which is asked for in one request however large it is."""
    if not is_pattern(name):
        found = resolve_workloads(server, name)
        return found if found == [full_name(name)] else [f"{full_name(name)}{ALL_TASKS}"]
    full = full_name(name)
    return [full] if full.endswith(ALL_TASKS) and is_array_pattern(server, full) else expand_name(server, name)


def wait_until(names: Sequence[str], goal: str, timeout_s: float | None, is_printed: bool = True) -> int:
    """Wait until every workload has reached the goal or has ended; print each, and return the exit code."""
    location, is_reached = server_location(), GOALS[goal]
    poller, pause = WorkloadPoller(lambda: connect(location)), FIRST_PAUSE_S
    unfinished: dict[str, WorkloadState | None] = dict.fromkeys(names)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    code = 0
    while True:
        for name in list(unfinished):
            progress = poller.progress(name)
            if progress is None:
                break
            unfinished[name] = progress.states[0]
            if all(is_reached(state) or state.is_over for state in progress.states):
                del unfinished[name]
                code = code if all(map(is_reached, progress.states)) else 1
                if is_printed:
                    click.echo(progress.words)
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


class WaitProgress(NamedTuple):
    states: tuple[WorkloadState, ...]  # of a workload, or all that tasks of an array are in, the liveliest first
    words: str


class WorkloadPoller:
    """Polls a server that may be away for a while."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._missing_since = 0.0

    def progress(self, name: str) -> WaitProgress | None:
        """Where a workload or an array is; None while the server is away."""
        if name.endswith(ALL_TASKS):
            return self._ask(lambda server: _array_progress(server, name))
        detail = self.detail(name)
        return None if detail is None else WaitProgress((detail.summary.state,), describe_ending(detail))

    def detail(self, name: str) -> WorkloadDetail | None:
        """The current state of a workload; None while the server is away."""
        return self._ask(lambda server: server.decode(server.get(workload_path(name)), WorkloadDetail))

    def _ask(self, question: Callable[[ApiClient], T]) -> T | None:
        try:
            answer = question(self._connect())
        except (NoServerError, LostServerError):
            self._missing_since = self._missing_since or time.monotonic()
            if time.monotonic() - self._missing_since > RECONNECT_S:
                raise
            return None
        self._missing_since = 0.0
        return answer


def _array_progress(server: ApiClient, name: str) -> WaitProgress:
    base = name.partition("/")[2].removesuffix(ALL_TASKS)
    query = {"label": f"{ARRAY_LABEL}={base}", "fold": "true"}
    page = server.decode(server.get("/workloads", query), Page[WorkloadView])
    view = next((item for item in page.items if item.name == name and item.array is not None), None)
    if view is None or view.array is None:
        raise NotFoundError(f"there is no array {name.removesuffix(ALL_TASKS)}; see: kaiwo get workloads")
    words = f"{short_name(name).removesuffix(ALL_TASKS)}: {view.reason}"
    return WaitProgress(tuple(map(WorkloadState, view.array.states)), words)


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
