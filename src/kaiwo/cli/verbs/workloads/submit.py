"""`kaiwo submit`: submit workloads, with flags or from YAML files."""

import contextlib
import re
from typing import Any, NoReturn

import click
import msgspec

from kaiwo.api.views.answers import Outcome
from kaiwo.cli.client.api_client import ApiClient
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.verb_base import connect_server
from kaiwo.cli.verbs.operate.apply_delete import file_option, post_manifests
from kaiwo.cli.workload_options import (
    COMMAND,
    CommandVerb,
    fields_to_flags,
    is_on_command_line,
    make_form,
    workload_options,
)
from kaiwo.model.errors import ClusterError, ConfigError, NotFoundError, RefusedError

_ARRAY = re.compile(r"([^\[\]]+)\[([0-9,:%-]+)\]")  # `sweep[0-99%8]`: the name of an array, and its tasks


class SubmitVerb(CommandVerb):
    begins_with_name = True


@click.command(cls=SubmitVerb)
@workload_options(is_background=True)
@file_option(required=False)
@click.option("--dry-run", is_flag=True, help="Check only; change nothing.")
@click.option("--wait", is_flag=True, help="Wait until it ends; exit with 1 if it did not succeed.")
@printing.output_option("table", "json", "yaml", "name")
@click.pass_context
def submit(ctx: click.Context, files: tuple[str, ...], dry_run: bool, wait: bool, output: str, **options: Any) -> int:
    """Submit a command with the GPUs it needs, or the workloads in YAML files.

    \b
    Examples:
      kaiwo submit train --gpus 4 --time 2h -- python train.py
      kaiwo submit --fraction 0.5 -- python eval.py
      kaiwo submit --pods 8 --gpus 8 --simulate 30m big
      kaiwo submit --array 0-9 --after prepare -- python part.py
      kaiwo submit 'sweep[0-99%8]' --gpus 1 -- python part.py
      kaiwo submit -f job.yaml --wait
    """
    if not options["array"] and (found := _ARRAY.fullmatch(options["name"])):
        options |= {"name": found[1], "array": found[2]}
    if files:
        _refuse_flags_with_files(ctx, options)
    elif not ctx.meta.get(COMMAND) and not options["simulate"] and not options["image"]:
        fact = "nothing to run; give a command after --, a file with -f, or --simulate 10m"
        refuse_without_command(ctx, options, fact)
    server = connect_server()
    if files:
        body = post_manifests(server, "/manifests", files, dry_run)
    else:
        body = post_form(server, make_form(ctx, options), {"dry_run": "true"} if dry_run else {})
    outcome = server.decode(body, Outcome)
    if not files:
        outcome = msgspec.structs.replace(outcome, warnings=[fields_to_flags(warning) for warning in outcome.warnings])
    printing.print_outcome(body, outcome, output)
    if wait and not dry_run and outcome.names:
        from kaiwo.cli.verbs.workloads.wait import wait_until

        return wait_until(outcome.names, "succeeded", None, output == "table")
    if printing.is_terminal() and output == "table" and outcome.names and not dry_run:
        name = short_name(outcome.names[0])
        printing.hint(f"next: kaiwo why {name}, kaiwo logs -f {name}")
    return 0


def post_form(server: ApiClient, form: dict[str, Any], query: dict[str, str]) -> bytes:
    """POST the form; an error about a field is raised as one about its flag."""
    try:
        return server.post("/workloads", form, query)
    except ConfigError as error:
        raise ConfigError(fields_to_flags(str(error), error.field), error.field) from None
    except RefusedError as error:
        if error.field != "queue" or "queue" not in form:
            raise
        way_out = "" if str(error).endswith("?") else "; see the queues with: kaiwo queue"
        raise RefusedError(f"{error}{way_out}", error.field) from None


def refuse_without_command(ctx: click.Context, options: dict[str, Any], complaint: str) -> NoReturn:
    """Refuse a submission without a command; other mistakes in it are reported first."""
    with contextlib.suppress(ClusterError, NotFoundError):
        post_form(connect_server(), make_form(ctx, options), {"dry_run": "true"})
    raise ConfigError(complaint)


def _refuse_flags_with_files(ctx: click.Context, options: dict[str, Any]) -> None:
    parameters = [each for each in ctx.command.params if each.name in options and is_on_command_line(ctx, each)]
    given = [parameter.opts[-1] for parameter in parameters]
    if given or ctx.meta.get(COMMAND):
        extra = ", ".join(given) or "the command after --"
        raise ConfigError(f"with -f everything comes from the files; leave out {extra}, or write it into the file")
