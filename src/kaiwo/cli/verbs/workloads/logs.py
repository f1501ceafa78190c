"""`kaiwo logs`: print a workload's output, or say why there is none."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from kaiwo.api.views.cluster import StatusView
from kaiwo.api.views.workloads import AttemptsView, WorkloadDetail
from kaiwo.cli.client.api_client import ApiClient, LostServerError, workload_path
from kaiwo.cli.client.http_connection import HttpError
from kaiwo.cli.name_completion import complete_workload, expand_name, is_pattern, resolve_workloads
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import given_fields, short_name
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.errors import ConfigError, KaiwoError, NotFoundError
from kaiwo.model.workload_record import WorkloadState

NOT_STARTED = (WorkloadState.WAITING, WorkloadState.HELD, WorkloadState.STARTING)
QUIET_S, PAUSE_S = 1.0, 0.1  # a workload that starts at once is not reported as waiting
LONGEST_PAUSE_S = 1.0
MAX_SOURCES = 256  # logs that are printed together
LONGEST_LINE = 1 << 20  # a longer one is broken
Write = Callable[[bytes], None]


@click.command(cls=Verb)
@click.argument("names", nargs=-1, required=True, metavar="WORKLOAD...", shell_complete=complete_workload)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the workload ends, from its first attempt on.")
@click.option("--pod", metavar="POD", default="", help="Pod to print (default: all, each line with its pod).")
@click.option("--tail", metavar="N", type=click.IntRange(0), help="Print only the last N lines of the latest attempt.")
@click.option("--attempt", metavar="N", type=click.IntRange(1), help="Attempt number (default: latest).")
@click.option(
    "--submission",
    metavar="N",
    type=click.IntRange(1),
    help="Submission of a name that was used again (default: latest).",
)
def logs(names: tuple[str, ...], follow: bool, **chosen: Any) -> int:
    """Print a workload's output. Of several pods or workloads, each line begins with its pod or workload.

    The base name of an array means all its tasks. Exits with 1 if the workload has not started; with -f, waits for it.
    A workload that is retried has a log for each attempt, and the last three are kept. -f prints them one after another
    and names each on standard error. A name that was submitted again keeps the logs of its earlier submissions.
    Workloads that run in simulated time have no output.

    \b
    Examples:
      kaiwo logs train
      kaiwo logs -f train --tail 20
      kaiwo logs train --attempt 1
      kaiwo logs train --submission 2
      kaiwo logs -f big
      kaiwo logs big --pod main-3
      kaiwo logs sweep --tail 1
    """
    server = connect_server()
    sources = _find_sources(server, names, chosen["pod"], chosen["submission"])
    if len(sources) == 1:
        return _print_one(server, sources[0], follow, given_fields({**chosen, "pod": sources[0].pod}))
    query = given_fields({**chosen, "pod": None})
    if _print_interleaved(server, sources, follow, query):
        return 0
    printing.hint(f"none of these {len(sources)} logs has any output")
    return 1


class LogSource(NamedTuple):
    workload: str
    pod: str  # empty: its only pod
    label: str  # before each line


def _find_sources(server: ApiClient, names: Sequence[str], pod: str, submission: int | None) -> list[LogSource]:
    is_one = bool(pod) or submission is not None  # of an array, neither a pod nor a submission is meant
    expanded = (
        expand_name(server, name) if is_one or is_pattern(name) else resolve_workloads(server, name) for name in names
    )
    workloads = dict.fromkeys(each for found in expanded for each in found)
    found: list[LogSource] = []
    query = {} if submission is None else {"submission": submission}
    for workload in workloads:
        pods = [pod]
        if not pod and len(workloads) <= MAX_SOURCES:
            view = server.decode(server.get(f"{workload_path(workload)}/attempts", query), AttemptsView)
            pods = view.pods if len(view.pods) > 1 else [""]
        short = short_name(workload)
        labels = [f"{short}/{each}" if each else short for each in pods] if len(workloads) > 1 else pods
        found += [LogSource(workload, *each) for each in zip(pods, labels, strict=True)]
        if len(found) > MAX_SOURCES:
            raise ConfigError(f"these are more than {MAX_SOURCES} logs; name fewer workloads, or choose one with --pod")
    return found


def _print_interleaved(server: ApiClient, sources: Sequence[LogSource], follow: bool, query: dict[str, Any]) -> int:
    """Print all logs line by line; how many bytes there were. Followed logs are printed as they grow."""
    if not follow:
        return sum(_print_source(server, source, False, query) for source in sources)
    copied, errors = [0] * len(sources), list[KaiwoError]()

    def read(number: int, source: LogSource) -> None:
        try:
            copied[number] = _print_source(server, source, True, query)
        except KaiwoError as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=each, daemon=True) for each in enumerate(sources)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # so that Ctrl-C is noticed
            thread.join(PAUSE_S)
    if errors:
        raise errors[0]
    return sum(copied)


def _print_source(server: ApiClient, source: LogSource, follow: bool, query: dict[str, Any]) -> int:
    chosen = {**query, "pod": source.pod} if source.pod else query
    with LabelledLines(source.label) as lines:
        if follow and "attempt" not in query:
            return follow_log(server, source.workload, chosen, lines.write)
        return copy_log(server, source.workload, {**chosen, "follow": "true"} if follow else chosen, write=lines.write)


class LabelledLines:
    """Writes whole lines to standard output, each after a label, so that logs do not mix within a line."""

    _lock = threading.Lock()

    def __init__(self, label: str) -> None:
        self._label, self._rest = f"[{label}] ".encode(), b""

    def __enter__(self) -> "LabelledLines":
        return self

    def __exit__(self, *_: object) -> None:
        if self._rest:
            self.write(b"\n")

    def write(self, part: bytes) -> None:
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        if lines:
            with self._lock:
                sys.stdout.buffer.write(b"".join(self._label + line + b"\n" for line in lines))
                sys.stdout.buffer.flush()


def _print_one(server: ApiClient, source: LogSource, follow: bool, query: dict[str, Any]) -> int:
    full, submission = source.workload, query.get("submission")
    if follow and submission is None and not _will_have_output(server, full):
        return 0
    if follow and "attempt" not in query:
        copied = follow_log(server, full, query)
    else:
        copied = copy_log(server, full, {**query, "follow": "true"} if follow else query)
    return 0 if copied else _explain_no_output(server, full, submission)


def follow_log(server: ApiClient, name: str, query: dict[str, Any], write: Write | None = None) -> int:
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
                copied += copy_log(server, name, {**query, "attempt": attempt, "follow": "true"}, write=write)
            query, seen, pause_s = chosen, attempt, PAUSE_S
        if not fresh:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)


def copy_log(server: ApiClient, name: str, query: dict[str, Any], skip: int = 0, write: Write | None = None) -> int:
    """Copy the log as it arrives, without its first `skip` bytes; return the number of bytes read.

    `write` gets the parts; None: standard output.
    """
    copied = 0
    response = server.open("GET", f"{workload_path(name)}/logs", query, may_be_silent="follow" in query)
    sys.stdout.flush()
    try:
        with response:
            for part in response.parts():
                (write or _write_out)(part[max(0, skip - copied) :])
                copied += len(part)
    except BrokenPipeError:
        raise
    except (OSError, HttpError) as error:
        lost = f"lost the connection to {server.url} while following {name}"
        command = f"kaiwo logs -f {short_name(name)}"
        raise LostServerError(f"{lost}; the workload may still be running: {command}") from error
    return copied


def _write_out(part: bytes) -> None:
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


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
