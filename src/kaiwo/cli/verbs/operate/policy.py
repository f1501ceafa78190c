"""`kaiwo policy`: show, compare, change and undo the scheduling policy of a running Kaiwo."""

import sys
from pathlib import Path
from typing import Any

import click

from kaiwo.api.views.policy import PolicyFieldView, PolicyOutcome, PolicyView
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import VerbGroup, connect_server, reason_option, reason_query
from kaiwo.model.errors import ConfigError
from kaiwo.model.reservation import clock_words


@click.group(cls=VerbGroup)
def policy() -> None:
    """Show and change the scheduling policy while Kaiwo runs. docs/policy.md has the fields.

    \b
    Examples:
      kaiwo policy get
      kaiwo policy diff placement=spread
      kaiwo policy set placement=spread --reason "GPUs run hot"
      kaiwo policy undo
    """


@policy.command()
@printing.output_option("table", "json", "yaml")
def get(output: str) -> None:
    """Show the policy in force. `-o yaml` prints a file for `kaiwo up --policy` and `kaiwo policy set -f`."""
    server = connect_server()
    body = server.get("/policy")
    view = server.decode(body, PolicyView)
    if output == "json":
        printing.print_body(body, output)
        return
    if output == "yaml":
        printing.print_data(view.policy, "yaml")
        return
    click.echo(printing.bold(printing.wrap(f"The policy is {_source(view)}.")))
    if view.policy:
        printing.print_data(view.policy, "yaml")
    else:
        click.echo("All fields have their defaults.")
    for change in view.changes:
        why = f": {change.reason}" if change.reason else ""
        click.echo(printing.wrap(f"Changed at {clock_words(change.at_s)} by {change.by or 'unknown'}{why}"))
        _print_fields(change.fields)


def _source(view: PolicyView) -> str:
    return view.source if view.source.startswith(("changed", "the ")) else f"that of {view.source}"


FILE = click.option("-f", "--file", metavar="FILE", help="A whole policy file; - reads standard input.")
FIELDS = click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")


@policy.command()
@FIELDS
@FILE
@printing.output_option("table", "json", "yaml")
def diff(fields: tuple[str, ...], file: str | None, output: str) -> None:
    """Check a change of the policy, and show which fields would differ. Nothing changes."""
    _send({**_form(fields, file), "dry_run": True}, "", output)


@policy.command("set")
@FIELDS
@FILE
@click.option("--dry-run", is_flag=True, help="Only check it, and show what would change.")
@reason_option()
@printing.output_option("table", "json", "yaml")
def set_fields(fields: tuple[str, ...], file: str | None, dry_run: bool, reason: str, output: str) -> None:
    """Change fields of the policy, or all of it with -f. It holds from the next cycle on, and after a restart.

    An empty value, as in `placement=`, sets a field to its default.
    """
    _send({**_form(fields, file), "dry_run": dry_run}, reason, output)


@policy.command()
@reason_option()
@printing.output_option("table", "json", "yaml")
def undo(reason: str, output: str) -> None:
    """Take the last change of the policy back."""
    server = connect_server()
    body = server.post("/policy/undo", {}, reason_query(reason))
    _print_outcome(body, server.decode(body, PolicyOutcome), output)


def _form(fields: tuple[str, ...], file: str | None) -> dict[str, Any]:
    if bool(fields) == bool(file):
        raise ConfigError("write FIELD=VALUE, such as placement=spread, or name a policy file with -f")
    if file:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text()
        except OSError as error:
            raise ConfigError(f"{file} cannot be read ({error.strerror}); name a file with a policy") from error
        return {"file": text if text.strip() else "{}"}
    given = {field: value for field, _, value in (each.partition("=") for each in fields)}
    if wrong := next((each for each in fields if "=" not in each), ""):
        raise ConfigError(f"'{wrong}' has no value; write {wrong}=VALUE")
    return {"set": given}


def _send(form: dict[str, Any], reason: str, output: str) -> None:
    server = connect_server()
    body = server.post("/policy", form, reason_query(reason))
    _print_outcome(body, server.decode(body, PolicyOutcome), output)


def _print_outcome(body: bytes, outcome: PolicyOutcome, output: str) -> None:
    if output != "table":
        printing.print_body(body, output)
        return
    _print_fields(outcome.fields)
    click.echo(printing.as_sentence(outcome.message))


def _print_fields(fields: list[PolicyFieldView]) -> None:
    for each in fields:
        click.echo(printing.wrap(f"{each.field}: {each.before} -> {each.after}", "  ", "    "))
