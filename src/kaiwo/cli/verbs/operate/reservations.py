"""`kaiwo reservations`: list, describe, create or delete GPU reservations."""

from typing import Any

import click

from kaiwo.api.views.answers import Outcome
from kaiwo.api.views.reservations import ReservationView
from kaiwo.cli.client.api_client import object_path
from kaiwo.cli.lists.object_kinds import RESERVATIONS
from kaiwo.cli.lists.read_object import read_object, server_time
from kaiwo.cli.lists.show_list import list_options, show_list
from kaiwo.cli.name_completion import complete_node, complete_queue, complete_reservation
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import full_name, given_fields, parse_pair, short_name
from kaiwo.cli.stop_running import insist, yes_option
from kaiwo.cli.verb_base import VerbGroup, connect_server, reason_option, reason_query, run_for_each
from kaiwo.model.amounts import count, duration, thousandths
from kaiwo.model.errors import ConfigError

MAX_DEVICES = 64


@click.group(cls=VerbGroup, describe="kaiwo reservations describe", invoke_without_command=True)
@list_options(RESERVATIONS)
@click.pass_context
def reservations(ctx: click.Context, **options: Any) -> None:
    """List reservations; describe, create or delete them.

    A reservation keeps GPUs for a queue, a user or a workload, or as a pool for workloads that name it, from a start to
    an end. USED counts the GPUs that its owner's workloads hold.

    \b
    Examples:
      kaiwo reservations
      kaiwo reservations --state active -o wide
      kaiwo reservations create night --gpus 8 --for-queue lab --start 2026-01-31T18:00:00Z --end 12h
      kaiwo submit train --gpus 8 --reservation night -- python train.py
    """
    if ctx.invoked_subcommand is None:
        show_list(RESERVATIONS, **options)


@reservations.command("describe")
@click.argument("name", metavar="NAME", shell_complete=complete_reservation)
@printing.output_option("table", "json", "yaml")
def describe(name: str, output: str) -> None:
    """Show one reservation in detail.

    \b
    Example:
      kaiwo reservations describe night
    """
    server = connect_server()
    body = read_object(server, RESERVATIONS, name)
    if output != "table":
        printing.print_body(body, output)
    else:
        print_reservation(server.decode(body, ReservationView), server_time(server))


@reservations.command("create")
@click.argument("name", metavar="NAME")
@click.option("-g", "--gpus", type=int, metavar="N", help="Number of GPUs; Kaiwo chooses them.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="GPU model. Repeatable.")
@click.option("--node-selector", multiple=True, metavar="KEY=VALUE", help="Only nodes with this label. Repeatable.")
@click.option(
    "--node", "nodes", multiple=True, metavar="NODE", shell_complete=complete_node, help="Whole node. Repeatable."
)
@click.option("--device", "devices", multiple=True, metavar="NODE/GPU", help="Exactly this GPU. Repeatable.")
@click.option("--for-queue", metavar="QUEUE", shell_complete=complete_queue, help="For this queue and those below it.")
@click.option("--for-user", metavar="NAME", help="For this user's workloads.")
@click.option("--for-workload", metavar="WORKLOAD", help="For this workload.")
@click.option("--start", metavar="WHEN", help="Start time such as 2026-01-31T18:00:00Z, or 2h from now (default: now).")
@click.option("--end", metavar="WHEN", help="End time, or 8h after the start (default: never).")
@click.option("--evict-at-end", is_flag=True, help="Stop the owner's workloads on these GPUs at the end.")
@click.option("--dry-run", is_flag=True, help="Check only; change nothing.")
@yes_option
@reason_option()
@printing.output_option("table", "json", "yaml", "name")
def create(name: str, dry_run: bool, yes: bool, reason: str, output: str, **options: Any) -> None:
    """Reserve GPUs for a queue, a user or a workload, or else as a pool for workloads that name it.

    If this stops running work, or asks for more GPUs than the cluster has, it says so and asks first.

    \b
    Examples:
      kaiwo reservations create night --gpus 8 --model MI300X --for-queue lab --start 18h --end 12h
      kaiwo reservations create demo --node node-3 --for-user ada --end 2026-01-31T18:00:00Z
      kaiwo reservations create pool --device node-1/gpu-0 --device node-1/gpu-1
    """
    form, server = _reservation_form(name, options), connect_server()
    query = ({"dry_run": "true"} if dry_run else {}) | reason_query(reason)
    body = insist(lambda more: server.post("/reservations", form, query | more), yes)
    printing.print_outcome(body, server.decode(body, Outcome), output)


@reservations.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_reservation)
@reason_option()
def delete(names: tuple[str, ...], reason: str) -> int:
    """Delete reservations; workloads that run on their GPUs continue.

    \b
    Example:
      kaiwo reservations delete night
    """
    server = connect_server()

    def delete_one(name: str) -> None:
        body = server.send("DELETE", object_path("reservations", name), reason_query(reason))
        printing.print_outcome(body, server.decode(body, Outcome))

    return run_for_each(names, delete_one)


def print_reservation(view: ReservationView, now_s: int) -> None:
    devices = [f"{device.node}/{device.gpu}" for device in view.devices]
    more = f" and {len(devices) - MAX_DEVICES} more" if len(devices) > MAX_DEVICES else ""
    owner = f"{view.owner_kind} {short_name(view.owner)}" if view.owner else "workloads that name it (a pool)"
    printing.print_facts(
        ("reservation", view.name),
        ("state", view.phase.value),
        ("for", owner),
        ("GPUs", f"{view.gpus}" + (f", and {view.missing} are missing" if view.missing else "")),
        ("used", f"{thousandths(view.used_milli)} of {count(view.gpu_milli // 1000, 'GPU')} by its owner's workloads"),
        ("starts", _time_text(view.start_s, now_s) if view.start_s else "when it was created"),
        ("ends", _time_text(view.end_s, now_s) if view.end_s else "never"),
        ("at the end", f"its owner's workloads {'are stopped' if view.at_end == 'evict' else 'continue'}"),
        ("models", ", ".join(view.gpu_models)),
        ("node labels", ", ".join(f"{key}={value}" for key, value in view.node_selector.items())),
        ("whole nodes", ", ".join(view.nodes)),
        ("devices", ", ".join(devices[:MAX_DEVICES]) + more),
        ("chosen by", "its creator" if view.is_exact else "the scheduler"),
        ("other workloads", ", ".join(short_name(name) for name in view.others)),
        ("note", view.message),
    )


def _time_text(at_s: int, now_s: int) -> str:
    from kaiwo.model.reservation import clock_words

    away = f"in {duration(at_s - now_s)}" if at_s > now_s else f"{duration(now_s - at_s)} ago"
    return f"{clock_words(at_s)} ({away})"


def _reservation_form(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The body of POST /reservations, without the options that were not given; the server checks the rest."""
    workload = full_name(options["for_workload"]) if options["for_workload"] else None
    owner = {"queue": options["for_queue"], "user": options["for_user"], "workload": workload}
    form = {
        "name": name,
        "gpus": options["gpus"],
        "gpuModels": list(options["models"]),
        "nodeSelector": dict(parse_pair(text, "label of a node") for text in options["node_selector"]),
        "nodes": list(options["nodes"]),
        "devices": [_parse_device(text) for text in options["devices"]],
        "owner": given_fields(owner),
        "start": options["start"],
        "end": options["end"],
        "atEnd": "evict" if options["evict_at_end"] else None,
    }
    return given_fields(form)


def _parse_device(text: str) -> dict[str, str]:
    node, slash, gpu = text.partition("/")
    if not (node and slash and gpu):
        raise ConfigError(f"'{text}' is not the name of a GPU; write it like node-1/gpu-0 (list: kaiwo gpus -o name)")
    return {"node": node, "gpu": gpu}
