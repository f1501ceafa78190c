"""`kaiwo run`: run a command on GPUs in the foreground, with its input, output and exit code.

Never: lets a workload with an input start twice: its input can't be sent again.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import click

from kaiwo.api.security.process_identity import process_identity
from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.workloads import ConsoleView, WorkloadDetail
from kaiwo.cli import attach_terminal
from kaiwo.cli.attach_terminal import ConsoleSession, connect_console
from kaiwo.cli.client.api_client import ApiClient, LostServerError, NoServerError, workload_path
from kaiwo.cli.client.find_server import connect
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.verb_base import connect_server, server_location
from kaiwo.cli.verbs.workloads.logs import NOT_STARTED, copy_log, follow_log
from kaiwo.cli.verbs.workloads.submit import post_form, refuse_without_command
from kaiwo.cli.verbs.workloads.wait import WorkloadPoller, describe_ending
from kaiwo.cli.workload_options import COMMAND, CommandVerb, fields_to_flags, make_form, workload_options
from kaiwo.model.errors import KaiwoError
from kaiwo.model.workload_record import WorkloadState

PAUSE_S, SHORT_PAUSE_S = 0.2, 0.03
QUIET_S = 0.5  # a workload that starts at once is not reported as waiting
MISSING_SERVER_S = 3.0  # how long to wait for a server that is gone when the exit code is known anyway


class Foreground:
    """One workload in the foreground, from its submission to its end."""

    def __init__(self, connect: Callable[[], ApiClient], name: str, check_signals: Callable[[], None]) -> None:
        self._connect = connect
        self._name = name
        self._check_signals = check_signals
        self._poller = WorkloadPoller(connect)
        self._last_reason = ""
        self._print_reasons_from = time.monotonic() + QUIET_S

    def run_to_end(self, has_input: bool) -> int:
        """Stay until the workload ends; return the exit code. `has_input`: it was submitted with our input."""
        if has_input and self._console().is_interactive:
            return self._run_attached()
        detail = self._wait_for_start()
        self._print_which_pod(detail)
        follow_log(self._connect(), self._name, {})
        return workload_exit_code(detail if detail.summary.state.is_over else self._wait_for_end())

    def _run_attached(self) -> int:
        session = self._attach()
        if session is None:
            follow_log(self._connect(), self._name, {})
            return workload_exit_code(self._wait_for_end())
        session.run()
        if session.exit_record is None:  # its supervisor is gone or did not wait for us: the rest is in the log
            copy_log(self._connect(), self._name, {"follow": "true"}, skip=session.copied)
            return workload_exit_code(self._wait_for_end())
        try:
            return workload_exit_code(self._wait_for_end(MISSING_SERVER_S))
        except (NoServerError, LostServerError):  # the exit code is known without a server
            return _shell_exit_code(int(session.exit_record["code"]))

    def _attach(self) -> ConsoleSession | None:
        """Connect as soon as it starts; None if it ended before, or another terminal is attached."""
        while True:
            detail = self._poller.detail(self._name)
            state = detail.summary.state if detail else WorkloadState.WAITING
            if state.is_over:
                return None
            if state in (WorkloadState.STARTING, WorkloadState.RUNNING) and (folder := self._console_folder()):
                if console := connect_console(folder):
                    self._print_which_pod(detail)
                    return ConsoleSession(console)
                if state is WorkloadState.RUNNING:
                    return None
            self._print_reason(detail)
            is_soon = state is WorkloadState.STARTING or time.monotonic() < self._print_reasons_from
            self._pause(SHORT_PAUSE_S if is_soon else PAUSE_S)

    def _wait_for_start(self) -> WorkloadDetail:
        while True:
            detail = self._poller.detail(self._name)
            if detail and detail.summary.state not in NOT_STARTED:
                return detail
            self._print_reason(detail)
            self._pause(PAUSE_S)

    def _wait_for_end(self, patience_s: float | None = None) -> WorkloadDetail:
        began = time.monotonic()
        while True:
            detail = self._poller.detail(self._name)
            if detail and detail.summary.state.is_over:
                return detail
            if detail is None and patience_s is not None and time.monotonic() - began > patience_s:
                raise LostServerError("gone")
            self._pause(SHORT_PAUSE_S if time.monotonic() - began < 1 else PAUSE_S)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        self._check_signals()

    def _print_reason(self, detail: WorkloadDetail | None) -> None:
        """Print why it waits, each reason once."""
        reason = detail.summary.reason if detail else ""
        if reason not in ("", self._last_reason) and time.monotonic() > self._print_reasons_from:
            self._last_reason = reason
            printing.hint(f"{short_name(self._name)} waits: {self._last_reason}")

    def _print_which_pod(self, detail: WorkloadDetail | None) -> None:
        if detail and (pods := detail.summary.pods.total) > 1:
            other = f"kaiwo logs {short_name(self._name)} --pod main-1"
            printing.hint(f"this is the output of main-0, the first of {pods} pods; for another pod: {other}")

    def _console_folder(self) -> str:
        """The folder of its console socket; empty if there is none yet or the server is away."""
        with contextlib.suppress(NoServerError, LostServerError):
            return self._console().folder
        return ""

    def _console(self) -> ConsoleView:
        server = self._connect()
        return server.decode(server.get(f"{workload_path(self._name)}/console"), ConsoleView)


def workload_exit_code(detail: WorkloadDetail) -> int:
    """The exit code of the command; any end but success is also printed."""
    if detail.summary.state is WorkloadState.SUCCEEDED:
        return 0
    printing.hint(f"kaiwo: {describe_ending(detail)}")
    return _shell_exit_code(detail.exit_code) or 1


def _shell_exit_code(code: int) -> int:
    """Signals are negative here; a shell expects 128 plus the signal's number."""
    return code if code >= 0 else 128 - code


class StoppedBySignal(BaseException):
    """A signal asked us to stop. Not an Exception, so that no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        self.number = number


class StopSignals:
    """The signals that end us, except those that are ignored already, as by nohup."""

    def __init__(self) -> None:
        self.number = 0  # the first that came
        ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        kept = [number for number in ours if signal.getsignal(number) != signal.SIG_IGN]
        self._previous: dict[int, Any] = {number: signal.signal(number, self._stop) for number in kept}

    def check(self) -> None:
        """Python drops an exception that a signal raises while a closed connection is being collected."""
        if self.number:
            raise StoppedBySignal(self.number)

    def restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _: Any) -> None:
        self.number = self.number or number
        raise StoppedBySignal(number)


@click.command(cls=CommandVerb)
@workload_options(is_background=False)
@click.pass_context
def run(ctx: click.Context, **options: Any) -> int:
    """Run a command on GPUs in the foreground, and exit with its exit code.

    At a terminal the command gets a terminal: shells, debuggers and editors work, and Ctrl-C reaches the command.
    Otherwise it reads your standard input. While it waits to start, Ctrl-C cancels it.

    If you disconnect, the command gets SIGHUP and the end of its input; `kaiwo logs` still has its output. It starts
    only once: if it is preempted, it fails and says so. Its input is empty with --retries, with input from /dev/null,
    in the background of a terminal, and if Kaiwo runs on another machine.

    \b
    Examples:
      kaiwo run --gpus 1 -- python check.py
      kaiwo run --gpus 1 -- bash
      kaiwo run --fraction 0.25 --time 10m -- rocm-smi
      zcat data.gz | kaiwo run --gpus 1 -- python score.py > scores
    """
    if not ctx.meta.get(COMMAND):
        fact = "no command to run; give it after --, like: kaiwo run --gpus 1 -- python check.py"
        refuse_without_command(ctx, options, fact)
    server, location = connect_server(), server_location()
    signals, name = StopSignals(), ""
    try:
        form = make_form(ctx, options)
        # Announces our input; empty if there is none.
        query = {"input_from": process_identity() or "unknown"} if attach_terminal.has_input() else {}
        if query and attach_terminal.is_terminal() and "TERM" in os.environ:
            form["env"] = {"TERM": os.environ["TERM"], **form.get("env", {})}
        outcome = server.decode(post_form(server, form, query), Outcome)
        for warning in outcome.warnings:
            printing.hint(f"warning: {fields_to_flags(warning)}")
        name = outcome.names[0]
        return Foreground(lambda: connect(location), name, signals.check).run_to_end(has_input=bool(query))
    except StoppedBySignal as stopped:
        return _cancel(name, stopped.number)
    finally:
        signals.restore()


def _cancel(name: str, number: int) -> int:
    asked = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    if not name:
        printing.hint(f"kaiwo: stopped by {asked} while submitting; see whether it exists: kaiwo get workloads")
        return 128 + number
    try:
        connect(server_location()).send("DELETE", workload_path(name))
        printing.hint(f"kaiwo: {asked}: cancelled {name}")
    except KaiwoError as error:
        printing.hint(f"kaiwo: {asked}, but {name} could not be cancelled: {error}")
    return 128 + number
