"""`kaiwo logs`: what a workload printed, or why there is nothing to print."""

import contextlib
import sys
import time
from typing import Any

import click

from kaiwo.api.views import AttemptsView, StatusView, WorkloadDetail
from kaiwo.cli.client.api_client import LostServerError, Server, workload_path
from kaiwo.cli.client.http_connection import HttpError
from kaiwo.cli.name_completion import complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, short_name
from kaiwo.cli.verb_base import Verb, this_server
from kaiwo.model.errors import NotFoundError
from kaiwo.model.workload_record import State

NOT_STARTED = (State.WAITING, State.HELD, State.STARTING)
PATIENCE_S, PAUSE_S = 1.0, 0.1  # work that starts at once is not said to wait
LONGEST_PAUSE_S = 1.0


@click.command(cls=Verb)
@click.argument("name", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until it is over, from its first attempt on.")
@click.option("--pod", metavar="POD", default="", help="Which pod; the first if not said.")
@click.option("--tail", metavar="N", type=click.IntRange(0), help="Only the last so many lines of the last attempt.")
@click.option(
    "--attempt", metavar="N", type=click.IntRange(1), help="Of this start: 1 is the first; the last if not said."
)
def logs(name: str, follow: bool, pod: str, tail: int | None, attempt: int | None) -> int:
    """Print what a workload printed.

    Exit code 1 when it has not started; with -f it is waited for. Work that is started again (--retries) has a log for
    each attempt, of which the last three are kept: -f goes through them one after the other and names each on standard
    error. Work that takes simulated time prints nothing.

    \b
    Examples:
      kaiwo logs train
      kaiwo logs -f train --tail 20
      kaiwo logs train --attempt 1
      kaiwo logs big --pod main-3
    """
    query: dict[str, Any] = {}
    if pod:
        query["pod"] = pod
    if tail is not None:
        query["tail"] = tail
    if attempt is not None:
        query["attempt"] = attempt
    server, full = this_server(), full_name(name)
    if follow and not _has_something_to_follow(server, full):
        return 0
    if follow and attempt is None:
        copied = follow_log(server, full, query)
    else:
        copied = copy_log(server, full, {**query, "follow": "true"} if follow else query)
    return 0 if copied else _explain_silence(server, full)


def follow_log(server: Server, name: str, query: dict[str, Any]) -> int:
    """Copy the logs of all attempts, one after the other, until there will be no more; how many bytes there were."""
    chosen = {"pod": query["pod"]} if "pod" in query else {}
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
            with contextlib.suppress(NotFoundError):  # so many attempts came meanwhile that this one is not kept
                copied += copy_log(server, name, {**query, "attempt": attempt, "follow": "true"})
            query, seen, pause_s = chosen, attempt, PAUSE_S
        if not fresh:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)


def copy_log(server: Server, name: str, query: dict[str, Any], skip: int = 0) -> int:
    """Copy the log to stdout as it comes, byte for byte, after the bytes to skip; how many bytes there were."""
    copied = 0
    response = server.open("GET", f"{workload_path(name)}/logs", query, is_patient="follow" in query)
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
        raise LostServerError(
            f"the kaiwo at {server.url} went away while following {name}; the work itself may go on: "
            f"kaiwo logs -f {short_name(name)}"
        ) from error
    return copied


def _has_something_to_follow(server: Server, name: str) -> bool:
    """Say what one would otherwise wait for without a word."""
    until = time.monotonic() + PATIENCE_S
    while (detail := _detail(server, name)).summary.state in NOT_STARTED and time.monotonic() < until:
        if _is_simulated(server, detail):
            break
        time.sleep(PAUSE_S)
    if not detail.summary.state.is_over and _is_simulated(server, detail):
        _say_simulated(name)
        return False
    if detail.summary.state in NOT_STARTED:
        short = short_name(name)
        printing.hint(f"{short} has not started; waiting for it (Ctrl-C ends; why it waits: kaiwo why {short})")
    return True


def _explain_silence(server: Server, name: str) -> int:
    """There was nothing to print: why, and the exit code."""
    detail, short = _detail(server, name), short_name(name)
    state = detail.summary.state
    if state in NOT_STARTED:
        printing.hint(f"{short} has not started; see: kaiwo why {short}")
        return 1
    if state.is_over and not detail.summary.started_s:
        printing.hint(f"{short} has no output: it never started, and {_ended(state)}")
        return 1
    if _is_simulated(server, detail):
        _say_simulated(name)
    return 0


def _ended(state: State) -> str:
    return "was cancelled" if state is State.CANCELLED else state.value


def _say_simulated(name: str) -> None:
    printing.hint(f"{short_name(name)} has no output: it takes simulated time")


def _detail(server: Server, name: str) -> WorkloadDetail:
    return server.decode(server.get(workload_path(name)), WorkloadDetail)


def _is_simulated(server: Server, detail: WorkloadDetail) -> bool:
    """No process runs for it: on this machine's cluster that is work without a command."""
    if detail.command:
        return False
    return server.decode(server.get("/status"), StatusView).cluster.kind in ("local", "simulated")
