"""`kaiwo apply -f` and `kaiwo delete -f`."""

import click

from kaiwo.api.views import Outcome
from kaiwo.cli.file_option import file_option, read_files
from kaiwo.cli.output import printing
from kaiwo.cli.verb_base import Verb, this_server

YAML = "application/yaml"


@click.command(cls=Verb)
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Only check it; change nothing.")
@printing.output_option("table", "json", "yaml", "name")
def apply(files: tuple[str, ...], dry_run: bool, output: str) -> None:
    """Create or change what YAML files describe. All documents are taken, or none.

    They hold queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and workloads:
    the short form that `kaiwo submit -f` takes, KaiwoJob, Job or Pod.

    \b
    Examples:
      kaiwo apply -f queues.yaml
      cat job.yaml | kaiwo apply -f - --dry-run
    """
    server = this_server()
    body = server.send("POST", "/manifests", {"dry_run": "true"} if dry_run else {}, read_files(files), YAML)
    printing.print_outcome(body, server.decode(body, Outcome), output)


@click.command(cls=Verb)
@file_option(required=True)
@printing.output_option("table", "json", "yaml")
def delete(files: tuple[str, ...], output: str) -> None:
    """Delete what YAML files name: queues are removed, workloads cancelled and forgotten.

    They hold queues (KaiwoQueue), reservations (KaiwoReservation), partition modes (PartitioningPlan) and workloads:
    the short form that `kaiwo submit -f` takes, KaiwoJob, Job or Pod.

    \b
    Example:
      kaiwo delete -f queues.yaml
    """
    server = this_server()
    body = server.send("POST", "/manifests/delete", None, read_files(files), YAML)
    printing.print_outcome(body, server.decode(body, Outcome), output)
