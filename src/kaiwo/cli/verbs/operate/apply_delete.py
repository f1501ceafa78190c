"""`kaiwo apply` and `kaiwo delete`: create, update or delete the objects in YAML files."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.output import printing
from kaiwo.cli.stop_running import insist, yes_option
from kaiwo.cli.verb_base import Verb, connect_server, reason_option, reason_query
from kaiwo.model.errors import ConfigError

MAX_BYTES = 16 * 1024 * 1024


def file_option(required: bool) -> Callable[[Any], Any]:
    return click.option(
        "-f", "--file", "files", multiple=True, required=required, metavar="FILE",
        type=click.Path(allow_dash=True), help="YAML file, or - for stdin. Repeatable.",
    )  # fmt: skip


def _read_file(path: str) -> bytes:
    named = "stdin" if path == "-" else path
    try:
        if path == "-":
            text = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}); check -f") from None
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{named} is larger than {MAX_BYTES // 1024 // 1024} MiB; split it")
    if not text.strip():
        raise ConfigError(f"{named} is empty; it should contain YAML documents")
    return text


def post_manifests(
    server: ApiClient, path: str, files: Sequence[str], dry_run: bool = False, yes: bool = False, reason: str = ""
) -> bytes:
    """Send all files as one stream of documents, so that the server applies all of them or none."""
    text = b"\n---\n".join(_read_file(file) for file in files)
    query = ({"dry_run": "true"} if dry_run else {}) | reason_query(reason)
    return insist(lambda more: server.send("POST", path, query | more, text, "application/yaml"), yes)


@click.command(cls=Verb)
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Check only; change nothing.")
@yes_option
@reason_option()
@printing.output_option("table", "json", "yaml", "name")
def apply(files: tuple[str, ...], dry_run: bool, yes: bool, reason: str, output: str) -> None:
    """Create or update the objects in YAML files: all of them or, on an error, none.

    The files contain queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and
    workloads: KaiwoJob, Job, Pod, or the short form that `kaiwo submit -f` takes.

    \b
    Examples:
      kaiwo apply -f queues.yaml
      cat job.yaml | kaiwo apply -f - --dry-run
    """
    server = connect_server()
    body = post_manifests(server, "/manifests", files, dry_run, yes, reason)
    printing.print_outcome(body, server.decode(body, Outcome), output)


@click.command(cls=Verb)
@file_option(required=True)
@reason_option()
@printing.output_option("table", "json", "yaml")
def delete(files: tuple[str, ...], reason: str, output: str) -> None:
    """Delete the objects in YAML files. Running workloads are cancelled first.

    The files contain queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and
    workloads: KaiwoJob, Job, Pod, or the short form that `kaiwo submit -f` takes.

    \b
    Example:
      kaiwo delete -f queues.yaml
    """
    server = connect_server()
    body = post_manifests(server, "/manifests/delete", files, reason=reason)
    printing.print_outcome(body, server.decode(body, Outcome), output)
