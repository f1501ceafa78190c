"""`kaiwo cancel`, `hold`, `release` and `requeue`: change many workloads at once, and report the result of each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import msgspec

from kaiwo.api.views.answers import Problem
from kaiwo.api.views.workloads import MAX_NAMES, ActionResult, BulkOutcome, NamesForm
from kaiwo.cli.client.api_client import ApiClient, object_path, problem_error
from kaiwo.cli.lists.object_kinds import WORKLOADS
from kaiwo.cli.lists.show_list import fetch_list, make_list_request
from kaiwo.cli.name_completion import (
    array_members,
    by_array,
    complete_queue,
    complete_workload,
    is_array_pattern,
    is_pattern,
    match_workloads,
    resolve_user,
)
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import UNFINISHED_STATES, full_name
from kaiwo.cli.verb_base import Verb, add_options, connect_server, exit_code, reason_option, reason_query
from kaiwo.model.errors import ConfigError

ALL_TASKS = "-*"  # `sweep-*` means all tasks of the array, as `describe` and `why` print it


class BulkAction:
    """Applies one verb to workloads. A pattern means those in `states`."""

    def __init__(self, server: ApiClient, verb: str, states: Sequence[str], reason: str = "") -> None:
        self._server = server
        self._verb = verb
        self._states = states
        self._query = reason_query(reason)
        self._code = 0

    def apply(self, names: Sequence[str]) -> int:
        """Apply the verb to all; return the exit code of the first failure. With a single name, raise it."""
        typed = [*dict.fromkeys(full_name(word) for word in names)]
        is_alone = len(typed) == 1
        for name, result in zip(typed, self._post(typed), strict=True):
            if result.problem is None or result.problem.kind != "not-found":
                self._report(result, is_alone)
            elif is_array_pattern(self._server, name):
                printing.hint(f"{result.problem.message}; nothing changed")
            elif is_pattern(name):
                self._apply_to_matching(name, is_alone)
            elif array_members(self._server, name, most=1):  # the base name of an array means its tasks
                self.apply([name + ALL_TASKS])
            else:
                self._report(result, is_alone)
        return self._code

    def _apply_to_matching(self, pattern: str, is_alone: bool) -> None:
        names = by_array(match_workloads(self._server, pattern, self._states))
        for result in self._post(names):
            self._report(result, is_alone=False)
        if not names:
            problem = Problem("not-found", f"no workload matches {pattern}; see: kaiwo get workloads")
            self._report(ActionResult(pattern, "", problem), is_alone)

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


class Selection(msgspec.Struct, frozen=True):
    """Workloads that are chosen by what they are, not by their names."""

    labels: tuple[str, ...] = ()
    queue: str = ""
    user: str = ""
    namespace: str = ""
    states: tuple[str, ...] = ()

    @property
    def is_given(self) -> bool:
        return bool(self.labels or self.queue or self.user or self.namespace)

    def find(self, server: ApiClient, default_states: Sequence[str], means_same: bool) -> list[str]:
        """`means_same`: the name of an array means its tasks in the default states, so it may stand for them.

        Tasks of an array have one user and the same labels, but not one state, and perhaps not one queue.
        """
        query = {"user": resolve_user(self.user)} if self.user else {}
        if self.namespace:
            query["namespace"] = self.namespace
        chosen = {"labels": self.labels, "queue": self.queue, "states": self.states or tuple(default_states)}
        is_split = bool(self.states or self.queue or not means_same)
        request = make_list_request(WORKLOADS, query, **chosen, tasks=is_split, limit=0)
        items = fetch_list(server, WORKLOADS, request)[0]
        if self.queue and not items:
            server.get(object_path("queues", self.queue))  # an unknown one is an error, with the nearest name
        return by_array(items)


# The states of workloads that a pattern means, where they differ from the default states of -l and -q.
PATTERN_STATES = {"requeue": ("running", "failed", "cancelled")}


def _selection_options(default_states: tuple[str, ...]) -> Callable[[Any], Any]:
    return add_options(
        click.argument("names", nargs=-1, metavar="[WORKLOAD]...", shell_complete=complete_workload),
        click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE",
                     help="All workloads with this label."),
        click.option("-q", "--queue", metavar="QUEUE", default="", shell_complete=complete_queue,
                     help="All workloads in this queue and below."),
        click.option("-u", "--user", metavar="NAME", default="", help="All workloads of this user; `me` for your own."),
        click.option("-n", "--namespace", metavar="NAMESPACE", default="", help="All workloads in this namespace."),
        click.option("--state", "states", multiple=True, metavar="STATE",
                     help=f"Of those selected: only in this state (default: {', '.join(default_states)})."),
        reason_option(),
    )  # fmt: skip


@click.command(cls=Verb)
@_selection_options(UNFINISHED_STATES)
def cancel(**chosen: Any) -> int:
    """Stop workloads for good. The base name of an array means all its tasks; * and ? stand for any text and character.

    \b
    Examples:
      kaiwo cancel train
      kaiwo cancel sweep sweep2-3
      kaiwo cancel 'sweep[10-99]' 'test-?'
      kaiwo cancel -u me --state waiting
      kaiwo cancel -l team=vision -n research
    """
    return _apply_to_selection("cancel", UNFINISHED_STATES, **chosen)


@click.command(cls=Verb)
@_selection_options(("waiting",))
def hold(**chosen: Any) -> int:
    """Keep waiting workloads from starting, until `kaiwo release`.

    \b
    Examples:
      kaiwo hold train
      kaiwo hold 'sweep[10-99]'
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
      kaiwo release 'sweep[10-99]'
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
    reason: str,
    **selected_by: Any,
) -> int:
    """Apply the verb to the named or selected workloads, whatever happens to the others."""
    selection = Selection(**selected_by)
    if bool(names) == selection.is_given:
        raise ConfigError("name workloads, or select them with -l, -q, -u or -n")
    if selection.states and names:
        raise ConfigError("--state works with -l, -q, -u or -n, not with names")
    server = connect_server()
    if not names:
        names = tuple(selection.find(server, default_states, means_same=verb not in PATTERN_STATES))
        if not names:
            printing.hint("no workloads match; nothing changed")
    return BulkAction(server, verb, PATTERN_STATES.get(verb, default_states), reason).apply(names)
