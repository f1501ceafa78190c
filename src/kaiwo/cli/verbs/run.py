"""`kaiwo run`: a command on GPUs, in the foreground, as if it ran here."""

import os
import signal
from typing import Any

import click

from kaiwo.api.seat import seat
from kaiwo.api.views import Outcome
from kaiwo.cli import console, printing
from kaiwo.cli.discovery import connect
from kaiwo.cli.foreground import Foreground
from kaiwo.cli.submission import COMMAND, CommandVerb, in_flags, make_form, work_options
from kaiwo.cli.verb import this_place, this_server
from kaiwo.cli.verbs.submit import post_form, refuse_nothing
from kaiwo.model.errors import KaiwoError


class Stopped(BaseException):
    """A signal asked us to end; like KeyboardInterrupt, no `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        self.number = number


@click.command(cls=CommandVerb)
@work_options(is_background=False)
@click.pass_context
def run(ctx: click.Context, **options: Any) -> int:
    """Run a command on GPUs in the foreground: wait for its turn, be its input and output, exit with its exit code.

    At a terminal the command gets a terminal: a shell, a debugger or an editor works, and Ctrl-C reaches the command.
    Otherwise your standard input is its standard input. While it waits for its turn, Ctrl-C cancels it.

    When you go away, the command gets SIGHUP and the end of its input, as from a terminal; `kaiwo logs` keeps what it
    printed. It is started once: stopped for other work, it fails and says so. Its input is empty with --retries, with
    input from /dev/null, in the background of a terminal, and where Kaiwo runs on another machine.

    \b
    Examples:
      kaiwo run --gpus 1 -- python check.py
      kaiwo run --gpus 1 -- bash
      kaiwo run --fraction 0.25 --time 10m -- rocm-smi
      zcat data.gz | kaiwo run --gpus 1 -- python score.py > scores
    """
    if not ctx.meta.get(COMMAND):
        refuse_nothing(
            ctx, options, "there is no command to run; give it after two dashes: kaiwo run --gpus 1 -- python check.py"
        )
    server, place = this_server(), this_place()
    previous = _listen()
    name = ""
    try:
        form, query = make_form(ctx, options), _input()
        if query and console.is_terminal() and "TERM" in os.environ:
            form["env"] = {"TERM": os.environ["TERM"], **form.get("env", {})}
        outcome = server.decode(post_form(server, form, query), Outcome)
        for warning in outcome.warnings:
            printing.hint(f"warning: {in_flags(warning)}")
        name = outcome.names[0]
        return Foreground(lambda: connect(place), name).attend(has_input=bool(query))
    except Stopped as stopped:
        return _cancel(name, stopped.number)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _input() -> dict[str, str]:
    """What to say of our input when submitting; nothing when there is none to give."""
    if not console.wants_input():
        return {}
    return {"input_from": seat() or "unknown"}


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
