"""`kaiwo cancel`, `hold`, `release` and `requeue`: change many workloads at once, and report the result of each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from kaiwo.api.views import MAX_NAMES, ActionResult, BulkOutcome, NamesForm, Problem
from kaiwo.cli.client.api_client import ApiClient, problem_error
from kaiwo.cli.lists.object_kinds import WORKLOADS
from kaiwo.cli.lists.show_list import fetch_list, make_list_request
from kaiwo.cli.name_completion import array_members, complete_queue, complete_workload
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import UNFINISHED_STATES, full_name
from kaiwo.cli.verb_base import Verb, add_options, connect_server, exit_code, reason_option, reason_query
from kaiwo.model.errors import ConfigError

ALL_TASKS = "-*"  # `sweep-*` means all tasks of the array, as `describe` and `why` print it


class BulkAction:
    """Applies one verb to workloads. An array's name means its tasks in `states`."""

    def __init__(self, server: ApiClient, verb: str, states: Sequence[str], reason: str = "") -> None:
        self._server = server
        self._verb = verb
        self._states = states
        self._query = reason_query(reason)
        self._code = 0

    def apply(self, names: Sequence[str]) -> int:
        """Apply the verb to all; return the exit code of the first failure. With a single name, raise it."""
        typed = {full_name(word): word for word in names}
        plain = [name for name in typed if not name.endswith(ALL_TASKS)]
        arrays = [_missing_array(name) for name in typed if name.endswith(ALL_TASKS)]
        for result in self._post(plain):
            if result.problem is not None and result.problem.kind == "not-found":
                arrays.append(result)
            else:
                self._report(result, is_alone=len(typed) == 1)
        for result in arrays:
            self._apply_to_array(result, typed[result.name], is_alone=len(typed) == 1)
        return self._code

    def _apply_to_array(self, missing: ActionResult, name: str, is_alone: bool) -> None:
        array = missing.name.removesuffix(ALL_TASKS)
        tasks = array_members(self._server, array, self._states)
        for result in self._post(tasks):
            self._report(result, is_alone=False)
        if tasks:
            return
        if array_members(self._server, array, most=1):
            printing.hint(f"no task of the array {name} is {' or '.join(self._states)}; nothing changed")
        else:
            self._report(missing, is_alone)

    def _post(self, names: Sequence[str]) -> Iterator[ActionResult]:
        for at in range(0, len(names), MAX_NAMES):
            answer = self._server.post(
                f"/workloads/{self._verb}", NamesForm(list(names[at : at + MAX_NAMES])), self._query
            )
            yield from self._server.decode(answer, BulkOutcome).results

    def _report(self, result: ActionResult, is_alone: bool) -> None:
        if result.problem is None:
            click.echo(result.done)
            return
        error = problem_error(result.problem)
        if is_alone:
            raise error
        printing.hint(f"kaiwo: {error}")
        self._code = self._code or exit_code(error)


def _missing_array(name: str) -> ActionResult:
    return ActionResult(name, "", Problem("not-found", f"there is no array {name}; see: kaiwo get workloads"))


# The states of the tasks that an array's name means, where they differ from the default states of -l and -q.
TASK_STATES = {"requeue": ("running", "failed", "cancelled")}


def _selection_options(default_states: tuple[str, ...]) -> Callable[[Any], Any]:
    return add_options(
        click.argument("names", nargs=-1, metavar="[WORKLOAD]...", shell_complete=complete_workload),
        click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE",
                     help="All workloads with this label."),
        click.option("-q", "--queue", metavar="QUEUE", default="", shell_complete=complete_queue,
                     help="All workloads in this queue and below."),
        click.option("--state", "states", multiple=True, metavar="STATE",
                     help=f"With -l or -q: only in this state (default: {', '.join(default_states)})."),
        reason_option(),
    )  # fmt: skip


@click.command(cls=Verb)
@_selection_options(UNFINISHED_STATES)
def cancel(**chosen: Any) -> int:
    """Stop workloads for good. The base name of an array means all its tasks.

    \b
    Examples:
      kaiwo cancel train
      kaiwo cancel sweep sweep2-3
      kaiwo cancel 'sweep-*'
      kaiwo cancel -l team=vision --state waiting
    """
    return _apply_to_selection("cancel", UNFINISHED_STATES, **chosen)


@click.command(cls=Verb)
@_selection_options(("waiting",))
def hold(**chosen: Any) -> int:
    """Keep waiting workloads from starting, until `kaiwo release`.

    \b
    Examples:
      kaiwo hold train
      kaiwo hold -q lab
    """
    return _apply_to_selection("hold", ("waiting",), **chosen)


@click.command(cls=Verb)
@_selection_options(("held",))
def release(**chosen: Any) -> int:
    """Let held workloads start.

    \b
    Examples:
      kaiwo release train
      kaiwo release -l team=vision
    """
    return _apply_to_selection("release", ("held",), **chosen)


@click.command(cls=Verb)
@_selection_options(("running", "failed"))
def requeue(**chosen: Any) -> int:
    """Stop workloads and put them back in the queue; workloads that have ended start again.

    The base name of an array means its tasks that are running, failed or cancelled.

    \b
    Examples:
      kaiwo requeue train
      kaiwo requeue 'sweep-*'
      kaiwo requeue -l team=vision --state failed
    """
    return _apply_to_selection("requeue", ("running", "failed"), **chosen)


def _apply_to_selection(
    verb: str,
    default_states: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    queue: str,
    states: tuple[str, ...],
    reason: str,
) -> int:
    """Apply the verb to the named or selected workloads, whatever happens to the others."""
    if bool(names) == bool(labels or queue):
        raise ConfigError("name workloads, or select them with -l or -q")
    if states and names:
        raise ConfigError("--state works with -l or -q, not with names")
    server = connect_server()
    if not names:
        request = make_list_request(WORKLOADS, labels=labels, queue=queue, states=states or default_states, limit=0)
        names = tuple(item["name"] for item in fetch_list(server, WORKLOADS, request)[0])
        if not names:
            printing.hint("no workloads match; nothing changed")
    return BulkAction(server, verb, TASK_STATES.get(verb, default_states), reason).apply(names)
