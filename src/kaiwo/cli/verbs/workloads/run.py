"""Attend to work that somebody runs in the foreground: wait for its turn, be its input and output, see its end.

In:    its name, and whether there is an input to give.   Out: what the shell should see.
Never: lets work start again that had an input: nobody could give it twice.

Also: `kaiwo run`: a command on GPUs, in the foreground, as if it ran here.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import click

from kaiwo.api.process_identity import process_identity
from kaiwo.api.views import ConsoleView, Outcome, WorkloadDetail
from kaiwo.cli import attach_terminal
from kaiwo.cli.attach_terminal import Sitting, call
from kaiwo.cli.client.api_client import LostServerError, NoServerError, Server, workload_path
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.client.wait_for_workloads import Watcher
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.verb_base import this_place, this_server
from kaiwo.cli.verbs.workloads.logs import copy_log, follow_log
from kaiwo.cli.verbs.workloads.submit import post_form, refuse_nothing
from kaiwo.cli.verbs.workloads.wait import ending
from kaiwo.cli.workload_options import COMMAND, CommandVerb, in_flags, make_form, work_options
from kaiwo.model.errors import KaiwoError
from kaiwo.model.workload_record import State

PAUSE_S, SHORT_PAUSE_S = 0.2, 0.03
PATIENCE_S = 0.5  # work that starts at once is not said to wait
ALONE_S = 3.0  # how long a server is missed when the end is known anyway
NOT_BEGUN = (State.WAITING, State.HELD, State.STARTING)


class Foreground:
    """One workload, from its submission to its end."""

    def __init__(self, connect: Callable[[], Server], name: str) -> None:
        self._connect = connect
        self._name = name
        self._watcher = Watcher(connect)
        self._told = ""
        self._told_from = time.monotonic() + PATIENCE_S

    def attend(self, has_input: bool) -> int:
        """Until it is over. `has_input`: it was submitted with ours, if the server took it."""
        if has_input and self._console().is_interactive:
            return self._sit()
        detail = self._wait_for_turn()
        self._name_pod(detail)
        follow_log(self._connect(), self._name, {})
        return exit_code_of(detail if detail.summary.state.is_over else self._wait_for_end())

    def _sit(self) -> int:
        """At its input and output."""
        sitting = self._sit_down()
        if sitting is None:
            follow_log(self._connect(), self._name, {})
            return exit_code_of(self._wait_for_end())
        sitting.sit()
        if sitting.end is None:  # its supervisor is gone, or did not wait for us: the log has the rest
            copy_log(self._connect(), self._name, {"follow": "true"}, skip=sitting.copied)
            return exit_code_of(self._wait_for_end())
        try:
            return exit_code_of(self._wait_for_end(ALONE_S))
        except (NoServerError, LostServerError):  # what became of it is known without a server
            return _shell_code(int(sitting.end["code"]))

    def _sit_down(self) -> Sitting | None:
        """As soon as it begins; None: it ended before, or somebody else sits there."""
        while True:
            detail = self._watcher.detail(self._name)
            state = detail.summary.state if detail else State.WAITING
            if state.is_over:
                return None
            if state in (State.STARTING, State.RUNNING) and (folder := self._folder()):
                if person := call(folder):
                    self._name_pod(detail)
                    return Sitting(person)
                if state is State.RUNNING:
                    return None
            self._say_why(detail)
            time.sleep(SHORT_PAUSE_S if state is State.STARTING or time.monotonic() < self._told_from else PAUSE_S)

    def _wait_for_turn(self) -> WorkloadDetail:
        while True:
            detail = self._watcher.detail(self._name)
            if detail and detail.summary.state not in NOT_BEGUN:
                return detail
            self._say_why(detail)
            time.sleep(PAUSE_S)

    def _wait_for_end(self, patience_s: float | None = None) -> WorkloadDetail:
        began = time.monotonic()
        while True:
            detail = self._watcher.detail(self._name)
            if detail and detail.summary.state.is_over:
                return detail
            if detail is None and patience_s is not None and time.monotonic() - began > patience_s:
                raise NoServerError("gone")
            time.sleep(SHORT_PAUSE_S if time.monotonic() - began < 1 else PAUSE_S)

    def _say_why(self, detail: WorkloadDetail | None) -> None:
        """Why it waits, once for each reason."""
        if detail and time.monotonic() > self._told_from and detail.summary.reason not in ("", self._told):
            self._told = detail.summary.reason
            printing.hint(f"{short_name(self._name)} waits: {self._told}")

    def _name_pod(self, detail: WorkloadDetail | None) -> None:
        if detail and (pods := detail.summary.pods.total) > 1:
            other = f"kaiwo logs {short_name(self._name)} --pod main-1"
            printing.hint(f"this is the output of main-0, the first of {pods} pods; of another: {other}")

    def _folder(self) -> str:
        """Where its input is taken; empty: not yet, or the server is away."""
        with contextlib.suppress(NoServerError, LostServerError):
            return self._console().folder
        return ""

    def _console(self) -> ConsoleView:
        server = self._connect()
        return server.decode(server.get(f"{workload_path(self._name)}/console"), ConsoleView)


def exit_code_of(detail: WorkloadDetail) -> int:
    """The command's own; what else became of it is said."""
    if detail.summary.state is State.SUCCEEDED:
        return 0
    printing.hint(f"kaiwo: {ending(detail)}")
    return _shell_code(detail.exit_code) or 1


def _shell_code(code: int) -> int:
    """A signal's number is negative, and for a shell 128 and so much."""
    return code if code >= 0 else 128 - code


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
        if query and attach_terminal.is_terminal() and "TERM" in os.environ:
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
    if not attach_terminal.wants_input():
        return {}
    return {"input_from": process_identity() or "unknown"}


def _cancel(name: str, number: int) -> int:
    """The work must not outlive the person who waits for it; say what became of it."""
    from kaiwo.cli.client.api_client import workload_path

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
