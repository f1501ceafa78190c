"""Steer many workloads with few requests, and say what became of each.

In:    the words that people typed: workloads, and arrays by their base name.   Out: a line for each, and an exit code.
Never: lets one that cannot be steered keep the others from being steered.
"""

from collections.abc import Iterator, Sequence

import click
import msgspec

from kaiwo.api.steeringviews import MOST_NAMES, ManyOutcome, NamesForm, SteeredView
from kaiwo.api.views import Problem
from kaiwo.cli import printing
from kaiwo.cli.names import array_members
from kaiwo.cli.server import Server, as_error
from kaiwo.cli.words import full_name
from kaiwo.model.errors import KaiwoError

ALL_TASKS = "-*"  # so `describe` and `why` write all tasks of an array


class Steering:
    """One verb, and the states in which a task of an array is meant by the array's name."""

    def __init__(self, server: Server, verb: str, states: Sequence[str]) -> None:
        self._server = server
        self._verb = verb
        self._states = states
        self._code = 0

    def do(self, words: Sequence[str]) -> int:
        """All of them; the first failure gives the exit code. The failure of a single word is raised."""
        typed = {full_name(word): word for word in words}
        plain = [name for name in typed if not name.endswith(ALL_TASKS)]
        arrays = [_missing(name) for name in typed if name.endswith(ALL_TASKS)]
        for result in self._ask(plain):
            if result.problem is not None and result.problem.kind == "not-found":
                arrays.append(result)
            else:
                self._tell(result, is_alone=len(typed) == 1)
        for result in arrays:
            self._steer_array(result, typed[result.name], is_alone=len(typed) == 1)
        return self._code

    def _steer_array(self, missing: SteeredView, word: str, is_alone: bool) -> None:
        """No workload has this name: an array may."""
        array = missing.name.removesuffix(ALL_TASKS)
        tasks = array_members(self._server, array, self._states)
        for result in self._ask(tasks):
            self._tell(result, is_alone=False)
        if tasks:
            return
        if array_members(self._server, array, most=1):
            printing.hint(f"no task of the array {word} is {' or '.join(self._states)}; nothing was done")
        else:
            self._tell(missing, is_alone)

    def _ask(self, names: Sequence[str]) -> Iterator[SteeredView]:
        for at in range(0, len(names), MOST_NAMES):
            body = msgspec.json.encode(NamesForm(list(names[at : at + MOST_NAMES])))
            answer = self._server.send("POST", f"/workloads/{self._verb}", None, body, "application/json")
            yield from self._server.decode(answer, ManyOutcome).results

    def _tell(self, result: SteeredView, is_alone: bool) -> None:
        if result.problem is None:
            click.echo(result.done)
            return
        error = as_error(result.problem)
        if is_alone:
            raise error
        printing.hint(f"kaiwo: {error}")
        self._code = self._code or _code_of(error)


def _missing(name: str) -> SteeredView:
    return SteeredView(name, "", Problem("not-found", f"there is no array {name}; see: kaiwo get workloads"))


def _code_of(error: KaiwoError) -> int:
    from kaiwo.cli.main import exit_code

    return exit_code(error)
