"""`kaiwo run`: a command on GPUs, in the foreground, as if it ran here."""

import signal
import time
from typing import Any

import click

from kaiwo.api.views import Outcome, WorkloadDetail
from kaiwo.cli import printing
from kaiwo.cli.discovery import connect
from kaiwo.cli.submission import COMMAND, CommandVerb, in_flags, make_form, work_options
from kaiwo.cli.verb import this_place, this_server
from kaiwo.cli.verbs.logs import copy_log
from kaiwo.cli.verbs.submit import post_form, refuse_nothing
from kaiwo.cli.verbs.wait import ending
from kaiwo.cli.waiting import Watcher
from kaiwo.cli.words import short_name
from kaiwo.model.errors import KaiwoError
from kaiwo.model.program import State

PAUSE_S = 0.2
PATIENCE_S = 0.5  # work that starts at once is not said to wait


class Stopped(BaseException):
    """A signal asked us to end; like KeyboardInterrupt, no `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command(cls=CommandVerb)
@work_options(is_background=False)
@click.pass_context
def run(ctx: click.Context, **options: Any) -> int:
    """Run a command on GPUs in the foreground: wait for its turn, show its output, exit with its exit code.

    Ctrl-C cancels it. Its input is empty.

    \b
    Examples:
      kaiwo run --gpus 1 -- python check.py
      kaiwo run --fraction 0.25 --time 10m -- rocm-smi
    """
    if not ctx.meta.get(COMMAND):
        refuse_nothing(
            ctx, options, "there is no command to run; give it after two dashes: kaiwo run --gpus 1 -- python check.py"
        )
    server = this_server()
    previous = _listen()
    name = ""
    try:
        outcome = server.decode(post_form(server, make_form(ctx, options), {}), Outcome)
        for warning in outcome.warnings:
            printing.hint(f"warning: {in_flags(warning)}")
        name = outcome.names[0]
        return _attend(name)
    except Stopped as stopped:
        return _cancel(name, stopped.number)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _attend(name: str) -> int:
    """Wait for its turn, copy its output, and return what the shell should see."""
    place = this_place()
    watcher = Watcher(lambda: connect(place))
    told, patience = "", time.monotonic() + PATIENCE_S
    while True:
        detail = watcher.detail(name)
        if detail and detail.summary.state not in (State.WAITING, State.HELD, State.STARTING):
            break
        if detail and time.monotonic() > patience and detail.summary.reason not in ("", told):
            told = detail.summary.reason
            printing.hint(f"{short_name(name)} waits: {told}")
        time.sleep(PAUSE_S)
    if (pods := detail.summary.pods.total) > 1:
        other = f"kaiwo logs {short_name(name)} --pod main-1"
        printing.hint(f"this is the output of main-0, the first of {pods} pods; of another: {other}")
    copy_log(connect(place), name, {"follow": "true"})
    while not (detail and detail.summary.state.is_over):
        time.sleep(PAUSE_S)
        detail = watcher.detail(name)
    return _exit_code(detail)


def _exit_code(detail: WorkloadDetail) -> int:
    if detail.summary.state is State.SUCCEEDED:
        return 0
    printing.hint(f"kaiwo: {ending(detail)}")
    if detail.exit_code < 0:
        return 128 - detail.exit_code
    return detail.exit_code or 1


def _cancel(name: str, number: int) -> int:
    """The work must not outlive the person who waits for it; say what became of it."""
    from kaiwo.cli.server import workload_path

    asked = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    if not name:
        printing.hint(f"kaiwo: stopped by {asked} while submitting; see if it was taken: kaiwo get workloads")
        return 128 + number
    try:
        connect(this_place()).send("DELETE", workload_path(name))
        printing.hint(f"kaiwo: {asked}: cancelled {name}")
    except KaiwoError as error:
        printing.hint(f"kaiwo: {asked}, but {name} could not be cancelled: {error}")
    return 128 + number


def _listen() -> dict[int, Any]:
    """Hear the signals that end us, but not those that somebody (nohup) told us to ignore."""
    ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return {number: signal.signal(number, _stop) for number in ours if signal.getsignal(number) != signal.SIG_IGN}


def _stop(number: int, _: Any) -> None:
    raise Stopped(number)
