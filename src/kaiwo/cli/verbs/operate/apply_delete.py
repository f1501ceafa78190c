"""`kaiwo apply` and `kaiwo delete`: create, update or delete the objects in YAML files."""

import click

from kaiwo.api.views import Outcome
from kaiwo.cli.file_option import file_option, read_files
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, connect_server

YAML = "application/yaml"


@click.command(cls=Verb)
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Check only; change nothing.")
@printing.output_option("table", "json", "yaml", "name")
def apply(files: tuple[str, ...], dry_run: bool, output: str) -> None:
    """Create or update the objects in YAML files: all of them or, on an error, none.

    The files contain queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and
    workloads: KaiwoJob, Job, Pod, or the short form that `kaiwo submit -f` takes.

    \b
    Examples:
      kaiwo apply -f queues.yaml
      cat job.yaml | kaiwo apply -f - --dry-run
    """
    server = connect_server()
    body = server.send("POST", "/manifests", {"dry_run": "true"} if dry_run else {}, read_files(files), YAML)
    printing.print_outcome(body, server.decode(body, Outcome), output)


@click.command(cls=Verb)
@file_option(required=True)
@printing.output_option("table", "json", "yaml")
def delete(files: tuple[str, ...], output: str) -> None:
    """Delete the objects in YAML files. Running workloads are cancelled first.

    The files contain queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and
    workloads: KaiwoJob, Job, Pod, or the short form that `kaiwo submit -f` takes.

    \b
    Example:
      kaiwo delete -f queues.yaml
    """
    server = connect_server()
    body = server.send("POST", "/manifests/delete", None, read_files(files), YAML)
    printing.print_outcome(body, server.decode(body, Outcome), output)
