"""`kaiwo logs`: print a workload's output, or say why there is none."""

import contextlib
import sys
import time
from typing import Any

import click

from kaiwo.api.views import AttemptsView, StatusView, WorkloadDetail
from kaiwo.cli.client.api_client import ApiClient, LostServerError, workload_path
from kaiwo.cli.client.http_connection import HttpError
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, given_fields, short_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload_record import WorkloadState

NOT_STARTED = (WorkloadState.WAITING, WorkloadState.HELD, WorkloadState.STARTING)
QUIET_S, PAUSE_S = 1.0, 0.1  # a workload that starts at once is not reported as waiting
LONGEST_PAUSE_S = 1.0


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the workload ends, from its first attempt on.")
@click.option("--pod", metavar="POD", default="", help="Pod to print (default: the first).")
@click.option("--tail", metavar="N", type=click.IntRange(0), help="Print only the last N lines of the latest attempt.")
@click.option("--attempt", metavar="N", type=click.IntRange(1), help="Attempt number (default: latest).")
@click.option(
    "--submission",
    metavar="N",
    type=click.IntRange(1),
    help="Submission of a name that was used again (default: latest).",
)
def logs(name: str, follow: bool, pod: str, tail: int | None, attempt: int | None, submission: int | None) -> int:
    """Print a workload's output.

    Exits with 1 if the workload has not started; with -f, waits for it. A workload that is retried has a log for each
    attempt, and the last three are kept. -f prints them one after another and names each on standard error. A name that
    was submitted again keeps the logs of its earlier submissions. Workloads that run in simulated time have no output.

    \b
    Examples:
      kaiwo logs train
      kaiwo logs -f train --tail 20
      kaiwo logs train --attempt 1
      kaiwo logs train --submission 2
      kaiwo logs big --pod main-3
    """
    query = given_fields({"pod": pod, "tail": tail, "attempt": attempt, "submission": submission})
    server, full = connect_server(), full_name(name)
    if follow and submission is None and not _will_have_output(server, full):
        return 0
    if follow and attempt is None:
        copied = follow_log(server, full, query)
    else:
        copied = copy_log(server, full, {**query, "follow": "true"} if follow else query)
    return 0 if copied else _explain_no_output(server, full, submission)


def follow_log(server: ApiClient, name: str, query: dict[str, Any]) -> int:
    """Copy the logs of all attempts, one after another, until the workload ends; return the number of bytes."""
    chosen: dict[str, Any] = {key: query[key] for key in ("pod", "submission") if key in query}
    copied = seen = 0
    pause_s = PAUSE_S
    while True:
        body = server.get(f"{workload_path(name)}/attempts", chosen)
        view = server.decode(body, AttemptsView)
        fresh = [each.attempt for each in view.attempts if each.attempt > seen]
        if not fresh and view.state.is_over:
            return copied
        for attempt in fresh[-1:] if "tail" in query and not seen else fresh:
            if attempt > 1 or len(fresh) > 1:
                printing.hint(f"--- attempt {attempt} of {short_name(name)} ---")
            with contextlib.suppress(NotFoundError):  # newer attempts have replaced this log meanwhile
                copied += copy_log(server, name, {**query, "attempt": attempt, "follow": "true"})
            query, seen, pause_s = chosen, attempt, PAUSE_S
        if not fresh:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)


def copy_log(server: ApiClient, name: str, query: dict[str, Any], skip: int = 0) -> int:
    """Copy the log to stdout as it arrives, without its first `skip` bytes; return the number of bytes read."""
    copied = 0
    response = server.open("GET", f"{workload_path(name)}/logs", query, may_be_silent="follow" in query)
    sys.stdout.flush()
    try:
        with response:
            for part in response.parts():
                sys.stdout.buffer.write(part[max(0, skip - copied) :])
                copied += len(part)
                sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except (OSError, HttpError) as error:
        lost = f"lost the connection to {server.url} while following {name}"
        command = f"kaiwo logs -f {short_name(name)}"
        raise LostServerError(f"{lost}; the workload may still be running: {command}") from error
    return copied


def _will_have_output(server: ApiClient, name: str) -> bool:
    """False if nothing will be printed; if the workload has not started yet, say so."""
    until = time.monotonic() + QUIET_S
    while (detail := _detail(server, name)).summary.state in NOT_STARTED and time.monotonic() < until:
        if _is_simulated(server, detail):
            break
        time.sleep(PAUSE_S)
    if not detail.summary.state.is_over and _is_simulated(server, detail):
        _print_simulated(name)
        return False
    if detail.summary.state in NOT_STARTED:
        short = short_name(name)
        printing.hint(f"{short} has not started; waiting for it (Ctrl-C to stop; see why it waits: kaiwo why {short})")
    return True


def _explain_no_output(server: ApiClient, name: str, submission: int | None) -> int:
    detail, short = _detail(server, name, submission), short_name(name)
    state = detail.summary.state
    if state in NOT_STARTED:
        printing.hint(f"{short} has not started; see: kaiwo why {short}")
        return 1
    if state.is_over and not detail.summary.started_s:
        ending = "was cancelled" if state is WorkloadState.CANCELLED else state.value
        printing.hint(f"{short} has no output: it never started, and {ending}")
        return 1
    if _is_simulated(server, detail):
        _print_simulated(name)
    return 0


def _print_simulated(name: str) -> None:
    printing.hint(f"{short_name(name)} has no output: it runs in simulated time")


def _detail(server: ApiClient, name: str, submission: int | None = None) -> WorkloadDetail:
    query = {} if submission is None else {"submission": submission}
    return server.decode(server.get(workload_path(name), query), WorkloadDetail)


def _is_simulated(server: ApiClient, detail: WorkloadDetail) -> bool:
    """True if it has no process: on a local or simulated cluster, a workload without a command."""
    if detail.command:
        return False
    return server.decode(server.get("/status"), StatusView).cluster.kind in ("local", "simulated")
