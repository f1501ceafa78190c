"""`kaiwo set`: change workloads in place."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kaiwo.api.views.workloads import MAX_NAMES, BulkOutcome, SetForm
from kaiwo.cli.client.api_client import ApiClient, problem_error
from kaiwo.cli.name_completion import complete_workload, expand_name, is_array, is_array_pattern, is_pattern
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import UNFINISHED_STATES, full_name
from kaiwo.cli.verb_base import Verb, connect_server, exit_code, reason_option, reason_query
from kaiwo.cli.workload_options import check_unit, field_of_flag
from kaiwo.model.errors import ConfigError, NotFoundError

SHOWN = 5  # results of an array's tasks that are printed one by one


@click.command("set", cls=Verb)
@click.argument(
    "words", nargs=-1, required=True, metavar="WORKLOAD... FIELD=VALUE...", shell_complete=complete_workload
)
@reason_option()
def set_fields(words: tuple[str, ...], reason: str) -> int:
    """Change workloads in place. They keep their age, and so their place in the queue.

    While a workload waits: priority, queue, time, estimate, reservation, hold, gpus, model, pods, cpu, memory and most
    other fields of `kaiwo submit`. While it runs: priority, time and estimate. An empty value clears a field. You may
    lower the priority, time and size of your own work; operators and administrators may also raise them. The base name
    of an array means all its tasks.

    \b
    Examples:
      kaiwo set train priority=-5
      kaiwo set train queue=vision time=4h
      kaiwo set train gpus=4 model=MI300X
      kaiwo set sweep 'other[0-9]' hold=true
      kaiwo set train time=
    """
    names = [word for word in words if "=" not in word]
    given = dict(_field(word) for word in words if "=" in word)
    if not names:
        raise ConfigError("name the workloads to change, like: kaiwo set train priority=5")
    if not given:
        raise ConfigError(f"say what to change, like: kaiwo set {names[0]} priority=5")
    server = connect_server()
    code = 0
    chosen = dict.fromkeys(each for name in names for each in _expand(server, name))
    for batch in _in_batches(list(chosen)):
        answer = server.post("/workloads/set", SetForm(batch, given), reason_query(reason))
        code = code or _report(server.decode(answer, BulkOutcome), is_alone=len(names) == 1)
    return code


def _field(word: str) -> tuple[str, Any]:
    """`gpus=4` and `gpu-memory=24Gi`: a field as the short form or the flags call it."""
    name, _, text = word.partition("=")
    field = field_of_flag(name)
    check_unit(field, word, text)
    return field, _value(text)


def _value(text: str) -> Any:
    if not text:
        return None
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else text


def _expand(server: ApiClient, name: str) -> list[str]:
    """The server knows the tasks of arrays; other patterns are matched here. A base name means all tasks."""
    full = full_name(name)
    if not is_pattern(full):
        try:
            return [f"{full}-*" if is_array(server, full) else full]
        except NotFoundError:
            return [full]  # the server says first whether this person may change work at all
    if is_array_pattern(server, full):
        return [full]
    return expand_name(server, name, UNFINISHED_STATES)


def _in_batches(names: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), MAX_NAMES):
        yield list(names[at : at + MAX_NAMES])


def _report(outcome: BulkOutcome, is_alone: bool) -> int:
    for warning in outcome.warnings:
        printing.hint(f"warning: {warning}")
    code = 0
    done = [result.done for result in outcome.results if result.problem is None]
    for line in done[: SHOWN if len(done) > SHOWN + 1 else None]:
        click.echo(line)
    if len(done) > SHOWN + 1:
        click.echo(f"and {len(done) - SHOWN} more workloads in the same way")
    for result in outcome.results:
        if result.problem is not None:
            error = problem_error(result.problem)
            if is_alone and len(outcome.results) == 1:
                raise error
            printing.hint(f"kaiwo: {error}")
            code = code or exit_code(error)
    return code
