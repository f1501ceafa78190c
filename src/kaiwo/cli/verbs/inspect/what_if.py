"""`kaiwo what-if`: change a copy of the cluster, run it forward, and show what each queue would get."""

from pathlib import Path
from typing import Any

import click

from kaiwo.api.views.what_if import QueueForecastView, WhatIfView
from kaiwo.cli.name_completion import complete_queue
from kaiwo.cli.output import printing
from kaiwo.cli.output.formatting import short_name
from kaiwo.cli.output.table_layout import text_columns
from kaiwo.cli.verb_base import Verb, connect_server
from kaiwo.model.amounts import count, rounded_duration
from kaiwo.model.errors import ConfigError

COLUMNS = ("QUEUE", "WAITING", "STARTED", "MEAN WAIT", "GPU HOURS", "EVICTED")


@click.command("what-if", cls=Verb)
@click.option("--quota", "quotas", multiple=True, metavar="QUEUE=GPUS", shell_complete=complete_queue,
              help="Give a queue this quota.")  # fmt: skip
@click.option("--limit", "limits", multiple=True, metavar="QUEUE=GPUS", shell_complete=complete_queue,
              help="Give a queue this limit.")  # fmt: skip
@click.option("--add-nodes", multiple=True, metavar="COUNT[:MODEL]", help="Add nodes of eight GPUs, such as 4:H100.")
@click.option(
    "--remove-node", "remove_nodes", multiple=True, metavar="NODE", help="Remove a node; its work waits again."
)
@click.option("--partition", "partitions", multiple=True, metavar="NODE=MODE",
              help="Partition the GPUs of a node, such as node-1=CPX+NPS4.")  # fmt: skip
@click.option("--policy", metavar="FILE", default="", help="Schedule with this policy file.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE",
              help="Add what is in this file: workloads, queues, reservations, topologies.")  # fmt: skip
@printing.output_option("table", "json", "yaml")
def what_if(output: str, **options: Any) -> None:
    """Change a copy of the cluster, run it forward with expected run times, and show the difference.

    Nothing is changed in the cluster. Each column shows what happens without the changes, and with them. Work of
    unknown run time never ends in the copy.

    \b
    Examples:
      kaiwo what-if --quota lab=32
      kaiwo what-if --add-nodes 4:MI300X --remove-node node-7
      kaiwo what-if --policy shortest.yaml -f train.yaml
    """
    server = connect_server()
    body = server.post("/what-if", _form(options))
    if output != "table":
        printing.print_body(body, output)
        return
    _print(server.decode(body, WhatIfView))


def _form(options: dict[str, Any]) -> dict[str, Any]:
    added = [text.partition(":") for text in options["add_nodes"]]
    return {
        "quotas": {name: _number(text, "--quota") for name, text in _pairs(options["quotas"], "--quota")},
        "limits": {name: _number(text, "--limit") for name, text in _pairs(options["limits"], "--limit")},
        "add_nodes": [
            {"count": _number(text, "--add-nodes"), **({"model": model} if model else {})} for text, _, model in added
        ],
        "remove_nodes": list(options["remove_nodes"]),
        "partitions": dict(_pairs(options["partitions"], "--partition")),
        "policy": _read(options["policy"]) if options["policy"] else "",
        "manifests": "\n---\n".join(_read(name) for name in options["files"]),
    }


def _pairs(texts: list[str], flag: str) -> list[tuple[str, str]]:
    for text in texts:
        if "=" not in text:
            raise ConfigError(f"{flag} is {text!r}; write NAME=VALUE")
    return [(name, value) for name, _, value in (text.partition("=") for text in texts)]


def _number(text: str, flag: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"{flag} has {text!r} where a whole number belongs")
    return int(text)


def _read(name: str) -> str:
    try:
        return Path(name).read_text()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None


def _print(view: WhatIfView) -> None:
    rows = [_row(each) for each in view.queues]
    printing.print_table(text_columns(COLUMNS, numbers=COLUMNS[1:]), rows)
    used = " -> ".join(
        f"{part * 100:.0f} % of {count(gpus, 'GPU')}" for part, gpus in zip(view.utilisation, view.gpus, strict=True)
    )
    reached = " -> ".join(rounded_duration(until_s - view.as_of_s) for until_s in view.until_s)
    click.echo(f"\nGPUs in use until all work has ended: {used}. That takes {reached}.")
    for name, start_s in view.added.items():
        when = f"starts in {rounded_duration(start_s - view.as_of_s)}" if start_s else "does not start"
        click.echo(f"{short_name(name)} {when}.")
    if not all(view.is_whole):
        click.echo("At least one run was ended before all work had started.")
    if view.unknown:
        click.echo(f"Nobody knows how long {count(view.unknown, 'workload')} will run; here they never end.")


def _row(each: QueueForecastView) -> list[str]:
    waits = [
        rounded_duration(wait_s) if started else "-" for wait_s, started in zip(each.wait_s, each.started, strict=True)
    ]
    return [
        each.queue,
        _change(*map(str, each.waiting)),
        _change(*map(str, each.started)),
        _change(*waits),
        _change(*(f"{hours:.1f}" for hours in each.gpu_hours)),
        _change(*map(str, each.evictions)),
    ]


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"
